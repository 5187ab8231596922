"use strict";
// Values under the pointer, a finger or the arrow keys. What is shown is read from each chart's own
// table, or from a matrix's own numbers; nothing else is stored.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const numbers = (text) => text.split(" ").map(Number);
  const plain = (text) => {
    const cleaned = text.replaceAll(",", "").replace("\u2212", "-");
    return /\d/.test(cleaned) ? Number(cleaned) : NaN;
  };

  function place(tip, plot, x, y) {
    tip.hidden = false;
    const free = plot.clientWidth - tip.offsetWidth;
    const left = x + 12 + tip.offsetWidth <= plot.clientWidth ? x + 12 : x - 12 - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(free, left))}px`;
    tip.style.top = `${Math.max(0, y)}px`;
  }

  function line(tip, look, text) {
    const row = document.createElement("div");
    if (look) {
      const dot = document.createElement("i");
      dot.className = look;
      row.append(dot);
    }
    row.append(text);
    tip.append(row);
  }

  // What a finger touched stays until it touches something else; a mouse shows by being there.
  function listen(target, follow, hide) {
    target.addEventListener("pointermove", follow);
    target.addEventListener("pointerdown", follow);
    target.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") hide(); });
    target.addEventListener("blur", hide);
    document.addEventListener("pointerdown", (event) => { if (event.target.closest(".plot") !== target.parentElement) hide(); });
  }

  function chart(figure) {
    const plot = figure.querySelector(".plot"), svg = plot.querySelector("svg");
    const tip = plot.querySelector(".tip"), cursor = svg.querySelector(".cursor");
    const table = figure.querySelector("table"), unit = table.dataset.unit || "";
    const [x0, x1, y0, y1] = numbers(figure.dataset.domain);
    const [left, right, bottom, top] = numbers(figure.dataset.box);
    const [xName, ...names] = [...table.tHead.rows[0].cells];
    const rows = [...table.tBodies[0].rows].map((row) => [...row.cells].map((c) => c.textContent));
    const xs = rows.map((row) => plain(row[0]));
    const series = names.map((cell, i) => rows
      .map((row, at) => ({ x: xs[at], y: plain(row[i + 1]), text: row[i + 1], xText: row[0] }))
      .filter((point) => !Number.isNaN(point.y)));
    const toX = (x) => left + (right - left) * (x - x0) / (x1 - x0);
    const toY = (y) => bottom + (top - bottom) * (y - y0) / (y1 - y0);
    let at = -1;

    function show(x) {
      let nearest = 0;
      xs.forEach((value, i) => { if (Math.abs(value - x) < Math.abs(xs[nearest] - x)) nearest = i; });
      at = nearest;
      const here = xs[at], reach = (x1 - x0) / 25;
      cursor.setAttribute("visibility", "visible");
      cursor.querySelectorAll("circle").forEach((circle) => circle.remove());
      cursor.firstElementChild.setAttribute("x1", toX(here));
      cursor.firstElementChild.setAttribute("x2", toX(here));
      tip.replaceChildren();
      line(tip, "", `${xName.textContent} ${rows[at][0]}`);
      series.forEach((points, i) => {
        const point = points.reduce((a, b) => !a || Math.abs(b.x - here) < Math.abs(a.x - here) ? b : a, null);
        if (!point || Math.abs(point.x - here) > reach) return;
        const circle = document.createElementNS(SVG, "circle");
        circle.setAttribute("class", names[i].dataset.look);
        circle.setAttribute("cx", toX(point.x));
        circle.setAttribute("cy", toY(point.y));
        circle.setAttribute("r", 3.5);
        cursor.append(circle);
        const name = names.length > 1 ? `${names[i].textContent}: ` : "";
        const when = point.x === here ? "" : ` (at ${point.xText})`;
        line(tip, names[i].dataset.look, `${name}${point.text}${unit}${when}`);
      });
      place(tip, plot, toX(here) * svg.clientWidth / svg.viewBox.baseVal.width, 4);
    }
    function hide() {
      tip.hidden = true;
      cursor.setAttribute("visibility", "hidden");
    }
    function follow(event) {
      const box = svg.getBoundingClientRect();
      const x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
      show(x0 + (x1 - x0) * (x - left) / (right - left));
    }
    listen(svg, follow, hide);
    svg.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: xs.length - 1 };
      if (event.key === "Escape") hide();
      if (!(event.key in moves)) return;
      event.preventDefault();
      show(xs[Math.max(0, Math.min(xs.length - 1, moves[event.key]))]);
    });
  }

  function matrix(figure) {
    const image = figure.querySelector("img"), plot = figure.querySelector(".plot");
    const tip = plot.querySelector(".tip"), data = image.dataset;
    const [rows, columns] = numbers(data.shape), [low, high] = numbers(data.limits);
    const levels = atob(data.values), names = data.names ? data.names.split("\n") : null;
    const named = (words, i) => words.replace("#", names ? names[i] : i);
    const value = (r, c) => (low + (high - low) * levels.charCodeAt(r * columns + c) / 255).toFixed(2);
    let at = [0, -1];

    function show(r, c) {
      at = [Math.max(0, Math.min(rows - 1, r)), Math.max(0, Math.min(columns - 1, c))];
      tip.replaceChildren();
      line(tip, "", value(...at));
      line(tip, "", named(data.row, at[0]));
      line(tip, "", named(data.column, at[1]));
      const [height, width] = [image.clientHeight / rows, image.clientWidth / columns];
      place(tip, plot, (at[1] + 0.5) * width, Math.min((at[0] + 0.5) * height + 10, image.clientHeight - 30));
    }
    function follow(event) {
      const box = image.getBoundingClientRect();
      show(Math.floor(rows * (event.clientY - box.top) / box.height),
        Math.floor(columns * (event.clientX - box.left) / box.width));
    }
    const hide = () => { tip.hidden = true; };
    listen(image, follow, hide);
    image.addEventListener("keydown", (event) => {
      const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
      if (event.key === "Escape") hide();
      if (!(event.key in moves)) return;
      event.preventDefault();
      show(at[0] + moves[event.key][0], at[1] + moves[event.key][1]);
    });
    const details = figure.querySelector("details");
    details.addEventListener("toggle", () => {
      const home = details.querySelector(".scroll");
      if (home.firstChild) return;
      const table = document.createElement("table"), head = table.createTHead().insertRow();
      const heading = (row, text, scope) => {
        const cell = document.createElement("th");
        cell.scope = scope;
        cell.textContent = text;
        row.append(cell);
      };
      heading(head, "", "col");
      for (let c = 0; c < columns; c++) heading(head, names ? names[c] : c, "col");
      const body = table.createTBody();
      for (let r = 0; r < rows; r++) {
        const row = body.insertRow();
        heading(row, names ? names[r] : r, "row");
        for (let c = 0; c < columns; c++) row.insertCell().textContent = value(r, c);
      }
      home.append(table);
    });
  }

  document.querySelectorAll("figure.chart").forEach(chart);
  document.querySelectorAll("figure.matrix").forEach(matrix);
})();
