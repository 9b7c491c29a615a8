"""A trained model as a file of weights, and a card in Markdown that describes it and how to load it."""

from __future__ import annotations

from pathlib import Path

from semcom.config import ConfigError, to_dict
from semcom.config.options import spell_option
from semcom.escape import escape_markdown
from semcom.files import CARD, EXPORT, MODEL, resolve_folder, write_atomically
from semcom.methods.registry import METHODS
from semcom.models.weights import encode_weights
from semcom.runs.result.accuracy import describe_window
from semcom.runs.result.places import hide_places
from semcom.runs.result.result import Result
from semcom.tasks.metric import read_task_metrics


def export_model(
    result: Result, client: int | None = None, view: str | None = None, out: Path | str | None = None
) -> list[Path]:
    """Write the model of a client as safetensors, with a card beside it.

    Args:
        result: of the run.
        client: id (None: any, if all clients have the same model).
        view: name of a view (None: the headline).
        out: folder of the two files (None: `export` in that of the run).

    Raises:
        ConfigError: as `Result.module`, clients have models of their own and none is chosen, or there is no folder.
    """
    name = view or next(iter(result.views))
    if client is None:
        cohorts = result.views[name].population.cohorts
        if len(cohorts) > 1 or any(n not in cohorts[0].shared for n in cohorts[0].network.state_dict()):
            raise ConfigError(f"client: in the view {name!r} clients have models of their own; give one, such as 0")
        client, whose = int(cohorts[0].ids[0]), "the model of all clients"
    else:
        whose = f"the model of client {client}"
    if out is None and result.out is None:
        raise ConfigError("out: the run has no folder; give one")
    folder = resolve_folder(out if out is not None else Path(result.out or "") / EXPORT)
    tensors = result.module(client, name).state_dict()
    notes = {"semcom": result.summary["versions"]["semcom"], "run": result.summary["hash"]}
    return [
        write_atomically(folder / MODEL, encode_weights(tensors, notes)),
        write_atomically(folder / CARD, write_model_card(result, name, client, whose)),
    ]


def write_model_card(result: Result, view: str, client: int, whose: str) -> str:
    """Write the card of a client's model in a view as Markdown."""
    config, summary, of_view = result.config, result.summary, result.summary["views"][view]
    metric, channel = read_task_metrics(summary)[0], config.channel
    own = of_view["clients"][result.clients.tolist().index(client)] if client in result.clients else None
    radio = result.world.session.draws.link.noisy
    link = f"{channel.kind}, trained at {channel.snr_db} dB" if radio else f"{channel.kind}, no noise"
    told = hide_places(to_dict(config))  # the card goes with the weights, wherever
    digest = config.contents.get(config.data.name, "")[:12]  # of a file
    options = {n: v for n, v in (told["partition"]["options"] or {}).items() if v is not None}
    division = ", ".join([config.partition.kind, *(f"{spell_option(name)} {value}" for name, value in options.items())])
    facts = {
        "method": f"{config.method} ({METHODS.get(config.method).paper})",
        "model": f"encoder {config.model.encoder}, {config.model.features} features, head {config.model.head}",
        "data": ", ".join(filter(None, (told["data"]["name"], digest and f"SHA-256 {digest}", division))),
        "clients": f"{config.clients}, seed {config.seed}",
        "classes": ", ".join(map(str, result.federation.classes)),
        "channel": link,
        "training": f"{summary['rounds']} rounds, {summary['samples']:,} samples visited by all clients",
        f"{metric.label}, mean over clients ({describe_window(summary, view)})": metric.state(of_view[metric.name]),
        f"{metric.label} after the last round": metric.state(of_view[metric.key("last")]),
        f"{metric.label} of client {client}": "not tested" if own is None else metric.state(own),
        "run": f"{summary['hash']}, semcom {summary['versions']['semcom']}, commit {summary['commit'] or 'unknown'}",
    }
    table = "\n".join(
        ["| | |", "| --- | --- |", *(f"| {name} | {escape_markdown(text)} |" for name, text in facts.items())]
    )
    pictured = result.federation.pictured
    scaled = "Scale images to [-1, 1] (byte / 127.5 - 1)" if pictured else "Take inputs as they are"
    between = "scale features to mean square 1 per image, " if result.world.session.draws.link.normalises else ""
    return f"""# {config.method}: {whose}, view {view}

{table}

## Use

`{MODEL}` holds `encoder.*` and `head.*` of {config.method}. {scaled}, call the encoder, {between}call the head.
Numbers of a run are measured through its channel.

```python
from semcom.models.weights import read_weights  # or safetensors.torch.load_file

tensors = read_weights("{MODEL}")
encoder.load_state_dict({{n.removeprefix("encoder."): t for n, t in tensors.items() if n.startswith("encoder.")}})
```

With BatchNorm, `load_state_dict(..., strict=False)`: `num_batches_tracked` is not stored. `semcom.load(RUN).module(
{client}, "{view}")` is the whole model, and `semcom train --config RUN --model.weights {MODEL} --out NEW` begins with
these weights.
"""
