"""The graph view in a browser: boxes open and close by mouse and keys, and what is drawn agrees with the document."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from tests.reporting.documents import small

from fusewise.reporting.document.outline import outline
from fusewise.reporting.page import html

Data = dict[str, Any]
LAYER = (("norm", "LayerNormalization", ("in",)), ("up", "MatMul", ("norm", "w")), ("act", "Gelu", ("up",)))
TAIL = (("down", "MatMul", ("act", "w")), ("add", "Add", ("down", "in")))
GROUPS = (
    ("LayerNormalization", (0,), "many_to_many"),
    ("MatMul+Gelu", (1, 2), "many_to_many"),
    ("MatMul+Add", (3, 4), "one_to_one"),
)


def layered(layers: int, prefix: str = "encoder.layer") -> Data:
    """A document of equal layers, in which the written graph has an identity behind each that the native one has not."""
    document = small()
    for name, extra in (("written", True), ("native", False)):
        nodes: list[Data] = []
        last = "x"
        for layer in range(layers):
            parts = [*LAYER, *TAIL, *((("same", "Identity", ("add",)),) if extra else ())]
            for part, op, reads in parts:
                inputs = [last if read == "in" else read if read == "w" else f"{read}{layer}" for read in reads]
                full = f"{prefix}.{layer}.{part}"
                nodes.append(
                    {
                        "id": len(nodes),
                        "name": full,
                        "op": op,
                        "domain": "",
                        "inputs": inputs,
                        "outputs": [f"{part}{layer}"],
                    }
                    | {
                        "attributes": {},
                        "mapping": "one_to_one",
                        "flops": 0,
                        "bytes": 0,
                        "origin": [full],
                        "runs": "kernel",
                    }
                    | {"group": None if extra else 3 * layer + {"norm": 0, "up": 1, "act": 1}.get(part, 2), "how": ""}
                )
            last = nodes[-1]["outputs"][0]
        values = {
            value: {"type": "float32[1,8]", "bytes": 32, "constant": value == "w"}
            for one in nodes
            for value in (*one["inputs"], *one["outputs"])
        }
        document["graphs"][name] = {"inputs": ["x"], "outputs": [last], "nodes": nodes, "values": values}
    document["graphs"]["clean"] = document["graphs"]["native"]
    document["groups"] = [
        {"id": 3 * layer + k, "title": title, "nodes": [5 * layer + member for member in members], "mapping": mapping}
        | {"anchor": None, "bytes_saved": 0, "stopped_by": [], "steps": []}
        for layer in range(layers)
        for k, (title, members, mapping) in enumerate(GROUPS)
    ]
    document["times"]["groups"] = [{"group": group["id"], "ms": 1.0 + group["id"] % 3} for group in document["groups"]]
    document |= {"verdicts": [], "decisions": [], "kernels": [], "steps": [], "memory": None}
    for name, graph in document["graphs"].items():
        graph["outline"] = outline(graph, document["groups"] if name != "written" else ())
    return document


TIMES = "\N{MULTIPLICATION SIGN}"


class View:
    """The graph tab of one page, by what a user does and what is drawn."""

    def __init__(self, page: Any) -> None:
        self.page = page
        page.wait_for_selector(".graph-stage[data-drawn]")

    def boxes(self) -> Data:
        """What is drawn: key of each box to its words and place."""
        script = """fusewise.graph.drawing.nodes().map((n) => ({key: n.id(), words: n.data('label'), kind: n.classes(),
            x: n.position('x'), y: n.position('y'), w: n.width(), h: n.height()}))"""
        return {box["key"]: box for box in self.page.evaluate(script)}

    def lines(self) -> list[Data]:
        script = """fusewise.graph.drawing.edges().map((e) => ({from: e.source().id(), to: e.target().id(),
            start: e.sourceEndpoint(), end: e.targetEndpoint(), bends: e.segmentPoints() || []}))"""
        found: list[Data] = self.page.evaluate(script)
        return found

    def key_of(self, words: str) -> str:
        return next(key for key, box in self.boxes().items() if words in box["words"].replace("\n", " "))

    def wait_for(self, words: str, shown: bool = True) -> None:
        script = """([words, shown]) => shown === fusewise.graph.drawing.nodes().some(
            (n) => n.data('label').replace('\\n', ' ').includes(words))"""
        self.page.wait_for_function(script, arg=[words, shown])

    def point(self, words: str) -> tuple[float, float]:
        """The middle of a box on the screen."""
        script = """(key) => {
            const at = fusewise.graph.drawing.getElementById(key).renderedPosition();
            const box = document.querySelector('.graph-drawing').getBoundingClientRect();
            return [box.x + at.x, box.y + at.y];
        }"""
        x, y = self.page.evaluate(script, self.key_of(words))
        return x, y

    def stage(self, title: str) -> None:
        self.page.locator(".graph-stages label").filter(has_text=title).click()

    def press(self, title: str) -> None:
        self.page.locator(".graph-tools").get_by_role("button", name=title, exact=True).click()

    def selected(self) -> Data | None:
        found: Data | None = self.page.evaluate("fusewise.selected")
        return found

    def chosen(self) -> str:
        """What the outline says of what is selected in it."""
        found: str = self.page.locator(".graph-outline [aria-selected=true]").get_attribute("aria-label")
        return found


Open = Callable[..., Any]


@pytest.fixture(scope="module")
def text() -> str:
    return html(layered(12))


@pytest.fixture
def view(open_page: Open, text: str) -> View:
    return View(open_page(text, "#graph", reduced_motion="reduce"))


def test_boxes_open_and_close_in_place_by_mouse_key_and_button(view: View) -> None:
    page = view.page
    assert [box["words"].split("\n") for box in view.boxes().values() if "repeat" in box["kind"]] == [
        ["▸ encoder.layer.0 to layer.11", f"{TIMES}12 · 5 operators each"]
    ]
    assert "12 times" in view.page.locator(".graph-outline [aria-expanded=false]").first.get_attribute("aria-label")
    page.mouse.dblclick(*view.point(f"{TIMES}12"))
    view.wait_for("MatMul + Gelu")
    assert view.page.locator(".graph-outline [role=group] [role=treeitem]").count() == 3
    page.mouse.click(*view.point("MatMul + Gelu"))
    assert view.selected() == {"kind": "group", "id": 1, "graph": "native"}
    page.locator(".graph-stage").focus()
    page.keyboard.press("Enter")
    view.wait_for("Gelu one to one")
    view.press("Close")
    view.wait_for("Gelu one to one", shown=False)
    view.press("Close all")
    view.wait_for("MatMul + Gelu", shown=False)


def test_what_is_drawn_fits(view: View) -> None:
    """Boxes of a level do not overlap and lie within the box around them; every line ends at its boxes and runs at right angles;
    and the lines between leaves are what the document says of one layer."""
    view.press("Open all")
    view.wait_for("Gelu one to one")
    boxes, lines = view.boxes(), view.lines()
    nested = {(a, b) for a in boxes for b in boxes if a != b and inside(boxes[a], boxes[b])}
    for a in boxes:
        for b in boxes:
            if a < b and (a, b) not in nested and (b, a) not in nested:
                assert apart(boxes[a], boxes[b]), (boxes[a], boxes[b])
    for line in lines:
        assert at_border(line["start"], boxes[line["from"]]) and at_border(line["end"], boxes[line["to"]]), line
        way = [line["start"], *line["bends"], line["end"]]
        for one, other in pairwise(way):
            assert min(abs(one["x"] - other["x"]), abs(one["y"] - other["y"])) < 1, line
    title = {key: box["words"].split("\n")[0] for key, box in boxes.items()}
    assert sorted((title[line["from"]], title[line["to"]]) for line in lines) == sorted(
        [
            ("x", "LayerNormalization"),
            ("x", "Add"),
            ("LayerNormalization", "MatMul"),
            ("MatMul", "Gelu"),
            ("Gelu", "MatMul"),
            ("MatMul", "Add"),
            ("Add", "add11"),
        ]
    )


def inside(one: Data, other: Data) -> bool:
    return (
        abs(one["x"] - other["x"]) + one["w"] / 2 <= other["w"] / 2 + 1
        and abs(one["y"] - other["y"]) + one["h"] / 2 <= other["h"] / 2 + 1
    )


def apart(one: Data, other: Data) -> bool:
    return (
        abs(one["x"] - other["x"]) >= (one["w"] + other["w"]) / 2 - 1
        or abs(one["y"] - other["y"]) >= (one["h"] + other["h"]) / 2 - 1
    )


def at_border(point: Data, box: Data) -> bool:
    """A line starts and ends at the upper or lower border, an arrow's tip within its size."""
    return abs(point["x"] - box["x"]) <= box["w"] / 2 + 1 and abs(abs(point["y"] - box["y"]) - box["h"] / 2) < 6


def test_a_node_of_any_copy_is_revealed_as_itself(view: View) -> None:
    view.page.evaluate("fusewise.select({kind: 'node', id: 37, graph: 'native'})")
    view.page.evaluate("fusewise.graph.reveal({kind: 'node', id: 37, graph: 'native'})")
    view.wait_for("Gelu one to one")
    assert view.page.locator(".graph-copy").inner_text() == "Copy 8 of 12"
    assert "encoder.layer.7.act" in view.chosen()
    view.page.get_by_role("button", name="Next copy").click()
    assert view.selected() == {"kind": "node", "id": 42, "graph": "native"}
    x, y = view.point("Gelu one to one")
    frame = view.page.locator(".graph-drawing").bounding_box()
    assert frame["x"] < x < frame["x"] + frame["width"] and frame["y"] < y < frame["y"] + frame["height"]


def test_a_stage_carries_over_what_is_selected(view: View) -> None:
    view.page.evaluate("fusewise.select({kind: 'node', id: 37, graph: 'native'})")
    view.stage("As written")
    view.wait_for("Identity")
    assert "encoder.layer.7.act" in view.chosen()
    assert view.page.locator(".graph-copy").inner_text() == "Copy 8 of 12"


def test_the_outline_is_worked_by_keys(view: View) -> None:
    page, focused = view.page, "document.activeElement.getAttribute('aria-label')"
    assert page.locator('.graph-outline [role=treeitem][tabindex="0"]').count() == 1
    page.locator('.graph-outline [tabindex="0"]').focus()
    assert page.evaluate(focused).startswith("x")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    view.wait_for("MatMul + Gelu")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(focused) == "LayerNormalization, many to many"
    page.keyboard.type("matmul + a")
    assert page.evaluate(focused).startswith("MatMul + Add")
    page.keyboard.press("Enter")
    assert view.selected() == {"kind": "group", "id": 2, "graph": "native"}
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    view.wait_for("MatMul + Gelu", shown=False)
    assert "12 times" in page.evaluate(focused)
    assert page.locator('.graph-outline [role=treeitem][tabindex="0"]').count() == 1


def test_the_drawing_is_worked_by_keys_and_no_trap(view: View) -> None:
    page = view.page
    page.locator(".graph-stage").focus()
    zoom = page.evaluate("fusewise.graph.drawing.zoom()")
    page.keyboard.press("+")
    assert page.evaluate("fusewise.graph.drawing.zoom()") > zoom
    pan = page.evaluate("fusewise.graph.drawing.pan().y")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("fusewise.graph.drawing.pan().y") < pan
    for _ in range(3):
        page.keyboard.press("Tab")
    assert not page.evaluate("document.querySelector('.graph').contains(document.activeElement)")


def test_what_is_found_is_marked_and_the_map_moves_the_drawing(view: View) -> None:
    page = view.page
    hits = page.evaluate("fusewise.graph.search('LAYER.7 gelu')")
    assert [hit["id"] for hit in hits] == [37]
    page.evaluate("fusewise.graph.highlight(fusewise.graph.search('gelu'))")
    assert page.evaluate("fusewise.graph.drawing.nodes('.hit').length") == 1
    view.press("Open all")
    view.wait_for("Gelu one to one")
    page.evaluate("void fusewise.graph.drawing.zoom(2)")
    page.wait_for_timeout(50)
    before = page.evaluate("fusewise.graph.drawing.extent().y1")
    place = page.locator(".graph-map").bounding_box()
    page.mouse.move(place["x"] + place["width"] / 2, place["y"] + 10)
    page.mouse.down()
    page.mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] - 10)
    page.mouse.up()
    assert page.evaluate("fusewise.graph.drawing.extent().y1") > before + 50


def test_a_drag_moves_the_drawing_wherever_it_begins(view: View) -> None:
    """On a box and beside one; and nothing is selected by it."""
    x, y = view.point(f"{TIMES}12")
    for across in (0, 300):
        before = view.page.evaluate("fusewise.graph.drawing.pan()")
        view.page.mouse.move(x + across, y)
        view.page.mouse.down()
        view.page.mouse.move(x + across + 30, y + 40, steps=4)
        view.page.mouse.move(x + across + 60, y + 80, steps=4)
        view.page.mouse.up()
        after = view.page.evaluate("fusewise.graph.drawing.pan()")
        assert after["x"] - before["x"] > 30 and after["y"] - before["y"] > 40
    assert view.selected() is None


def test_a_tab_that_is_left_before_its_graph_is_drawn(open_page: Open, text: str, view: View) -> None:
    """It waits until it is seen, and then looks as if it had been seen from the beginning."""
    page = open_page(text, "#overview", reduced_motion="reduce")
    page.evaluate("() => { fusewise.show('graph'); fusewise.show('overview'); }")
    page.wait_for_function("() => Boolean(fusewise.graph.drawing)")
    page.wait_for_timeout(400)
    page.get_by_role("tab", name="Graph").click()
    seen = "[fusewise.graph.drawing.zoom(), fusewise.graph.drawing.pan().x, document.querySelector('.graph-map').width > 0]"
    assert View(page).page.evaluate(seen) == view.page.evaluate(seen)


def test_heat_is_said_in_words_and_counts_all_copies(view: View) -> None:
    view.press("Heat")
    assert f"{TIMES}12 · 72 ms · 100.0%" in str(view.boxes())
    view.stage("As written")
    view.wait_for("operators each")
    assert view.page.get_by_role("button", name="Heat").is_disabled()


@pytest.mark.parametrize("inputs, boxes", [([], 0), (["x"], 2)])
def test_a_graph_without_operators_is_drawn(open_page: Open, inputs: list[str], boxes: int) -> None:
    document = layered(1)
    values = {"x": {"type": "float32[1]", "bytes": 4, "constant": False}}
    empty = {"inputs": inputs, "outputs": inputs, "nodes": [], "values": values, "outline": []}
    document |= {"graphs": dict.fromkeys(document["graphs"], empty), "groups": [], "times": None}
    assert len(View(open_page(html(document), "#graph")).boxes()) == boxes


@pytest.mark.slow
def test_thousands_of_operators_open(open_page: Open) -> None:
    """Four hundred layers that are not equal: levels stay short, and opening all stops before it is slow."""
    document = layered(400, "block")
    for graph in document["graphs"].values():
        for one in graph["nodes"]:
            one["attributes"] = {"number": str(one["id"])}
        graph["outline"] = outline(graph, document["groups"] if graph is not document["graphs"]["written"] else ())
    view = View(open_page(html(document), "#graph", reduced_motion="reduce"))
    assert len(view.boxes()) < 130
    view.page.evaluate("fusewise.graph.show('written')")
    count = len(view.boxes())
    view.press("Open all")
    view.page.wait_for_function("(count) => fusewise.graph.drawing.nodes().length > count", arg=count, timeout=120_000)
    assert count < len(view.boxes()) <= 1201
