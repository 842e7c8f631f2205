"""What stands at the end of each verb's help: lines that do something, as they are typed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["EXAMPLES", "examples"]

ANYWHERE = "-q (data and errors only), -v (decisions, times) and --debug may stand anywhere."

EXAMPLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "inspect": (
            "fusewise inspect model.onnx",
            "fusewise inspect zoo:bert_base --groups",
            "fusewise inspect zoo:resnet18 --why relu --json",
            "fusewise inspect zoo:resnet18 --tree 0 --dot | dot -Tsvg > group.svg",
            "fusewise inspect model.onnx --device cuda:sm_90",
        ),
        "optimize": (
            "fusewise optimize model.onnx -o better.onnx",
            "fusewise optimize model.onnx -o model.onnx --force",
            "fusewise optimize model.onnx --search relaxed --seconds 60 -o out.onnx",
            "fusewise optimize model.onnx --target onnxruntime -o for_ort.onnx",
        ),
        "compile": (
            "fusewise compile model.onnx",
            "fusewise compile model.onnx --symbol batch=8 -o model.fw",
            "fusewise compile model.onnx --tune 60 --threads 4",
            "fusewise compile model.onnx --decisions decisions.jsonl -v",
            "fusewise compile model.onnx --device cuda:sm_90 -o model.fw",
        ),
        "run": (
            "fusewise run model.onnx --input x=x.npy -o y.npz",
            "fusewise run model.fw --trust public.pem --input x=x.npy",
            "fusewise run zoo:resnet50 --seed 1 --json",
            "fusewise run model.fw --device cuda:1",
        ),
        "bench": (
            "fusewise bench model.onnx",
            "fusewise bench zoo:resnet50 --vs onnxruntime,openvino --threads 1",
            "fusewise bench model.onnx --symbol batch=1,8 --symbol sequence=16,128",
            "fusewise bench net.py:make --vs torch,torch.compile",
            "fusewise bench zoo:bert_base --profile",
        ),
        "verify": (
            "fusewise verify model.onnx",
            "fusewise verify model.onnx --inputs hostile",
            "fusewise verify model.onnx --disable winograd-convolution --tolerance 1e-4",
            "fusewise verify small.onnx --device cuda:sm_90",
        ),
        "passes": (
            "fusewise passes --list",
            "fusewise passes zoo:mobilenet_v2",
            "fusewise passes model.onnx --search 60 -o best.toml",
        ),
        "gradient": (
            "fusewise gradient model.onnx -o with_gradients.onnx",
            "fusewise gradient model.onnx --of loss --weights -o training.onnx",
        ),
        "plan": (
            "fusewise plan zoo:resnet18 --buffer 256KiB -o plan.html",
            "fusewise plan model.onnx --hardware edge-512k --scheme brr -o plan.json",
            "fusewise plan --sweep sweep.toml -o results.jsonl --workers 4",
        ),
        "report": (
            "fusewise report model.onnx -o report.html",
            "fusewise report zoo:bert_base -o report.json --no-times",
            "fusewise report report.json -o run.perfetto.json",
            "fusewise report before.json after.json -o difference.html",
        ),
        "explain": (
            "fusewise explain model.onnx --node conv1",
            "fusewise explain zoo:resnet18 --node relu --decisions all.jsonl",
            "fusewise explain plan.json --group 7",
        ),
        "completion": ("source <(fusewise completion bash)",),
        "zoo list": ("fusewise zoo list", "fusewise zoo list --json"),
        "zoo build": (
            "fusewise zoo build resnet50 -o resnet50.onnx",
            "fusewise zoo build bert_base --batch 4 --exported -o bert.onnx",
        ),
        "cache info": ("fusewise cache info",),
        "cache clear": ("fusewise cache clear",),
        "profile info": ("fusewise profile info --json",),
        "profile measure": ("fusewise profile measure model.onnx", "fusewise profile measure model.onnx --device cuda"),
        "profile clear": ("fusewise profile clear",),
        "profile export": ("fusewise profile export -o measurements.jsonl",),
    }
)
"""By verb. A test reads each line as the program does."""


def examples(verb: str) -> str:
    """The end of a verb's help, whose lines stay as they are."""
    lines = EXAMPLES[verb]
    heading = "Example:" if len(lines) == 1 else "Examples:"
    return "\n".join(("\b", heading, *(f"  {line}" for line in lines))) + f"\n\n{ANYWHERE}"
