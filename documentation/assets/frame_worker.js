// Search runs in a worker, which browsers refuse to pages that are opened from files. There it runs in a hidden frame instead,
// which the search script knows by the name IFrameWorker.
"use strict";
(() => {
  if (location.protocol !== "file:") return;

  class FrameWorker extends EventTarget {
    constructor(address) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.title = "search";
      document.body.append(this.frame);
      const inner = this.frame.contentWindow;
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inner.importScripts = (...addresses) => addresses.reduce((done, one) => done.then(() => this.load(one)), Promise.resolve());
      this.load(new URL(address, document.baseURI).href).then(() => {
        const waiting = this.waiting;
        this.waiting = null;
        waiting.forEach((data) => this.deliver(data));
      });
    }

    load(address) {
      const inside = this.frame.contentDocument;
      const script = inside.createElement("script");
      script.src = address;
      inside.body.append(script);
      return new Promise((done, failed) => {
        script.onload = done;
        script.onerror = () => failed(new Error(`${address} cannot be read`));
      });
    }

    deliver(data) {
      const inner = this.frame.contentWindow;
      inner.dispatchEvent(new inner.MessageEvent("message", { data }));
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.deliver(data);
    }

    terminate() {
      this.frame.remove();
    }
  }

  window.IFrameWorker = FrameWorker;
  window.Worker = FrameWorker;
})();
