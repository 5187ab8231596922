// Every word must occur; a hit in a heading counts more than one in the text.
const box = document.getElementById("search");
const list = document.getElementById("found");
const root = document.body.dataset.root;

function score(entry, words) {
  const title = entry.title.toLowerCase(), text = entry.text.toLowerCase();
  let sum = 0;
  for (const word of words) {
    const here = (title.includes(word) ? 10 : 0) + Math.min(3, text.split(word).length - 1);
    if (here === 0) return 0;
    sum += here;
  }
  return sum;
}

function excerpt(text, word) {
  const at = Math.max(0, text.toLowerCase().indexOf(word) - 40);
  return (at ? "… " : "") + text.slice(at, at + 140);
}

function show() {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  const hits = words.length
    ? WORDS.map(entry => [score(entry, words), entry]).filter(([s]) => s > 0)
    : [];
  hits.sort((a, b) => b[0] - a[0]);
  list.replaceChildren(...hits.slice(0, 12).map(([, entry]) => {
    const item = document.createElement("li"), link = document.createElement("a");
    const more = document.createElement("small");
    link.href = `${root}/${entry.to}`;
    link.textContent = entry.title === entry.page ? entry.page : `${entry.page}: ${entry.title}`;
    more.textContent = excerpt(entry.text, words[0]);
    link.append(more);
    item.append(link);
    return item;
  }));
  list.hidden = words.length === 0;
  if (words.length && !hits.length) list.innerHTML = "<li><a>nothing found</a></li>";
}

box.addEventListener("input", show);
document.addEventListener("keydown", event => {
  if (event.key === "/" && document.activeElement !== box) { event.preventDefault(); box.focus(); }
  if (event.key === "Escape") { box.value = ""; show(); }
  if (event.key === "Enter" && document.activeElement === box) list.querySelector("a")?.click();
});
document.addEventListener("click", event => { if (!event.target.closest(".search")) list.hidden = true; });
