// The map: all of the drawing, small, with a frame around what is seen of it. Dragging the frame moves the drawing.
(() => {
  "use strict";
  const fusewise = (window.fusewise = window.fusewise || {});

  // `view()` gives {x, y, width, height} of what is seen; `move(point)` puts a point of the drawing in the middle.
  class Overview {
    constructor(canvas, view, move) {
      Object.assign(this, { canvas, view, move, boxes: [], frame: 0 });
      this.under = document.createElement("canvas");
      canvas.addEventListener("pointerdown", (event) => {
        canvas.setPointerCapture(event.pointerId);
        this.follow(event);
        event.preventDefault();
      });
      canvas.addEventListener("pointermove", (event) => canvas.hasPointerCapture(event.pointerId) && this.follow(event));
    }

    follow(event) {
      const box = this.canvas.getBoundingClientRect();
      const { scale, left, top } = this;
      this.move({ x: (event.clientX - box.left - left) / scale, y: (event.clientY - box.top - top) / scale });
    }

    // Draw the boxes once; the frame is drawn over them.
    show(layout, palette, colourOf) {
      const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
      const dense = window.devicePixelRatio || 1;
      for (const one of [this.canvas, this.under]) [one.width, one.height] = [width * dense, height * dense];
      this.dense = dense;
      this.palette = palette;
      this.size = { width: layout.width, height: layout.height };
      this.scale = Math.min((width - 10) / (layout.width || 1), (height - 10) / (layout.height || 1));
      this.left = (width - layout.width * this.scale) / 2;
      this.top = (height - layout.height * this.scale) / 2;
      const pen = this.under.getContext("2d");
      pen.scale(dense, dense);
      pen.clearRect(0, 0, width, height);
      for (const box of layout.boxes) {
        pen.fillStyle = box.open ? palette.open : colourOf(box);
        pen.strokeStyle = palette.openLine;
        const place = [this.left + box.x * this.scale, this.top + box.y * this.scale, Math.max(1.5, box.width * this.scale), Math.max(1.5, box.height * this.scale)];
        pen.fillRect(...place);
        if (box.open) pen.strokeRect(...place);
      }
      this.update();
    }

    update() {
      if (this.frame || !this.palette) return;
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        const pen = this.canvas.getContext("2d");
        pen.setTransform(1, 0, 0, 1, 0, 0);
        pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
        pen.drawImage(this.under, 0, 0);
        pen.scale(this.dense, this.dense);
        const seen = this.view();
        const whole = seen.x <= 0 && seen.y <= 0 && seen.x + seen.width >= this.size.width && seen.y + seen.height >= this.size.height;
        this.canvas.style.visibility = whole ? "hidden" : "visible";
        pen.strokeStyle = this.palette.accent;
        pen.lineWidth = 1.5;
        pen.strokeRect(this.left + seen.x * this.scale, this.top + seen.y * this.scale, seen.width * this.scale, seen.height * this.scale);
      });
    }
  }

  fusewise.graphMap = { make: (canvas, view, move) => new Overview(canvas, view, move) };
})();
