"""The settings behind the published tables, as their configs have them, beside the paper's."""

from typing import Any

from docs.builder.gains import of_study

from wessl.recipes import recipe
from wessl.settings import to_dict
from wessl.study.text import grid

State = dict[str, Any]
OF = {
    "digits": "weightings-digits",
    "MNIST": "where-how-mnist",
    "Tiny ImageNet": "where-how-tiny",
    "Imagenette": "methods-imagenette",
}


def table() -> str:
    configs = [base(study) for study in OF.values()]
    configs.append(to_dict(recipe("dino-star/vits16")))
    gammas = [ensemble_gamma(study) for study in OF.values()]
    sharp = recipe("dino-star-ent/vits16").loss
    gammas.append(f"{sharp.gamma_start:g} to {sharp.gamma:g} in {sharp.gamma_epochs:g}")
    told = [describe(config) for config in configs]
    rows = [[name, *(one[name] for one in told)] for name in told[0]]
    rows.append(["gamma / ln c of `ent`, and epochs until it is there", *gammas])
    return grid(["", *OF, "*the paper, ImageNet*"], rows) + "\n"


def base(study: str) -> State:
    rows = of_study(study)["rows"]
    config: State = next(row["config"] for row in rows if row["base"] is None)
    return config


def ensemble_gamma(study: str) -> str:
    rows = of_study(study)["rows"]
    own = next(row["settings"] for row in rows if row["settings"].get("loss.weighting") == "ent")
    loss = base(study)["loss"]
    epochs = own.get("loss.gamma_epochs", loss["gamma_epochs"])
    return f"{loss['gamma_start']:g} to {own['loss.gamma']:g} in {epochs:g}"


def describe(config: State) -> dict[str, str]:
    """Of one head: what is set, in words."""
    encoder, heads, loss, optim = (config[part] for part in ("encoder", "heads", "loss", "optim"))
    vit = encoder["kind"] == "vit"
    warm = loss["teacher_temperature_epochs"]
    start, end = loss["teacher_temperature_start"], loss["teacher_temperature"]
    return {
        "encoder": f"ViT-{encoder['size']}/{encoder['patch_size']}"
        if vit
        else f"ResNet of {', '.join(map(str, encoder['widths']))} channels",
        "views": views(config["views"]["crops"]),
        "epochs; of warm-up": f"{optim['epochs']:g}; {optim['warmup_epochs']:g}",
        "batch": f"{optim['batch_size']:,}",
        "learning rate": f"{optim['lr']:g}",
        "weight decay": f"{optim['weight_decay']:g} to {optim['weight_decay_end']:g}",
        "layers of a head; hidden; embedding": f"{heads['depth']}; "
        + (f"{heads['hidden_dim']:,}" if heads["depth"] > 1 else "none")
        + f"; {heads['embed_dim']}",
        "codes": f"{heads['codes']:,}",
        "student's temperature": f"{loss['student_temperature']:g}",
        "teacher's temperature": f"{end:g}"
        if start == end
        else f"{start:g} to {end:g} in {warm:g} epochs",
        "teacher's momentum": f"{optim['momentum']:g} to {optim['momentum_end']:g}",
        "drop-path": f"{encoder['drop_path']:g}" if vit else "none",
        "precision": config["precision"],
    }


def views(crops: list[State]) -> str:
    """
    >>> views([dict(size=64, count=1), dict(size=64, count=1), dict(size=32, count=6)])
    '2 x 64 + 6 x 32'
    """
    counts: dict[int, int] = {}
    for crop in crops:
        counts[crop["size"]] = counts.get(crop["size"], 0) + crop["count"]
    return " + ".join(f"{count} x {size}" for size, count in counts.items())


TABLES = {"settings": table}
