"""Run folders for the report to read, written as the other rooms write them."""

import base64
import io
import math

import numpy as np
from PIL import Image

from wessl.config import Config, Options
from wessl.run import Run
from wessl.settings import override, to_dict

CODES = 64


def picture(side=12, colour=(200, 80, 20)):
    file = io.BytesIO()
    Image.fromarray(np.full((side, side, 3), colour, np.uint8)).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def header(**changes):
    config = override(Config(), {"heads.count": 4, "heads.codes": CODES, "epochs": 10} | changes)
    return dict(
        format=1,
        config=to_dict(config),
        options=to_dict(Options(device="cpu")),
        choices=[
            dict(setting="optim.lr", value=0.001, reason="a small network", warning=False),
            dict(setting="heads.codes", value=64, reason="too few targets", warning=True),
        ],
        data=dict(location="photos", pictures=500, skipped=2, digest="d"),
        init=None,
        command="wessl pretrain photos --out run",
        versions=dict(wessl="0.1", torch="2.13", python="3.11"),
    )


def row(step, steps=100, **changes):
    return (
        dict(
            step=step,
            steps=steps,
            epoch=10 * step / steps,
            loss=4.0 - step / steps,
            teacher_entropy=3.0,
            teacher_temperature=0.025,
            codes=CODES,
            codes_used=[40, 30, 20, 10],
            head_shares=[0.25] * 4,
            heads_effective=3.5,
            rank=20.0,
            images_per_second=1000.0,
            ms=64.0,
            data_wait=0.01,
        )
        | changes
    )


def probe(step, accuracy, steps=100, pictures=None):
    found = {"knn": accuracy} | ({} if pictures is None else {"pictures": pictures})
    return dict(step=step, epoch=10 * step / steps, probe=found)


def make_run(path, rows=None, log=(), results=None, finished=True, **changes):
    run = Run.create(path, header(**changes))
    usual = [*(row(step) for step in range(10, 101, 10)), probe(10, 0.5), probe(100, 0.75)]
    for one in usual if rows is None else rows:
        run.add_metrics(one)
    for line in log:
        run.log(line)
    for name, result in (results or {}).items():
        run.save_result(name, result)
    if finished:
        (run.path / "encoder.safetensors").touch()
    return run.path


def shot(per_draw, interval=None):
    return dict(
        accuracy=sum(per_draw) / len(per_draw),
        per_draw=per_draw,
        draws=len(per_draw),
        interval=interval,
        protocol=dict(name="1-shot", classifier="logistic regression", strengths=[0.1, 1.0]),
    )


def evaluation(per_draw, pixels=0.4, classes=("cat", "dog"), digest="t"):
    place = dict(location="labelled", pictures=100, classes=len(classes), digest=digest)
    return dict(
        format=1,
        kind="evaluation",
        train=place,
        test=place,
        columns=["1-shot", "k-NN"],
        rows=[
            dict(
                name="this run",
                role="run",
                results={
                    "1-shot": shot(per_draw, [min(per_draw), max(per_draw)]),
                    "k-NN": dict(accuracy=0.9),
                },
            ),
            dict(name="raw pixels", role="pixels", results={"1-shot": dict(accuracy=pixels)}),
        ],
        per_class=dict(
            protocol="1-shot",
            classes=[dict(name=name, accuracy=0.5, pictures=50) for name in classes],
            confusion=[[0.75, 0.25], [0.5, 0.5]],
            confused=[dict(true=classes[1], predicted=classes[0], share=0.5, count=25)],
        ),
    )


def gallery(label="cat", other="dog", attention=True):
    near = [
        dict(index=i, label=other if i == 2 else label, similarity=0.9, thumbnail=picture())
        for i in range(6)
    ]
    look = dict(index=0, label=label, thumbnail=picture(), mean=picture(), heads=[picture()] * 3)
    return dict(
        format=1,
        kind="gallery",
        searched=500,
        pictures=500,
        similarity="cosine",
        same_label=0.8,
        chance=0.1,
        samples=[dict(index=9, label=label, thumbnail=picture(), neighbours=near)] * 3,
        attention=dict(block=12, grid=[3, 3], samples=[look]) if attention else None,
    )


def diversity(heads=4):
    share = np.linspace(0, 1, 32)
    curve = dict(
        share=share.tolist(), before=(0.5 - share / 2).tolist(), after=(1 - share).tolist()
    )
    matrix = np.random.default_rng(0).random((16, 16)).tolist()
    pair = dict(role="least diverse", heads=[0, 1], score=0.3, score_before=0.6, **curve)
    sure = [dict(index=7, entropy=0.5, code=3)] * 8
    return dict(
        format=1,
        kind="diversity",
        summary="The heads differ.",
        heads=heads,
        codes=CODES,
        pictures=500,
        score=0.3,
        score_before=0.6,
        scores=(0.3 * (1 - np.eye(heads))).tolist(),
        adjusted_information=np.eye(heads).tolist(),
        curves=curve,
        shown=[pair | dict(matrix_before=matrix, matrix_after=matrix)],
        per_head=[
            dict(score=0.3, codes_used=40, effective_codes=30.0, entropy=2.0,
                 most_confident=1 / heads, sure=sure)
        ] * heads,
        agreement=dict(mean=0.5, bins=[1] * 20),
        disagreed=[dict(index=7, agreement=0.1, codes=[1] * heads)],
        gallery={"7": dict(name="photos/7.jpg", thumbnail=picture())},
    )  # fmt: skip


def everything(label="cat"):
    draws = [0.6 + 0.02 * math.sin(i) for i in range(10)]
    return dict(
        evaluation=evaluation(draws, classes=(label, "dog")),
        gallery=gallery(label),
        diversity=diversity(),
    )
