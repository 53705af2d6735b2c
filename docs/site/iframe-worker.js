// From file:// a browser starts no worker, and the search is one. There its script runs in a hidden frame of the page.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = frame.contentDocument.createElement("script");
      this.send = new Promise((done) => {
        script.onload = () => done((data) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
      });
      script.src = address;
      frame.contentDocument.body.append(script);
    }

    postMessage(data) {
      this.send.then((send) => send(data));
    }
  };
}
