// Signing in, and confirming actions.

import { fill, h } from "./dom.js";
import { call } from "./state.js";

const dialog = document.getElementById("dialog");

export function actionButton(context, text, action, target, warning) {
  return h("button", { type: "button", class: action === "run-service" ? "" : "danger", onclick: () => confirm(context, text, action, target, warning) }, text);
}

function confirm(context, text, action, target, warning) {
  const typed = h("input", { "aria-label": "Type it to confirm", autocomplete: "off", oninput: () => { go.disabled = typed.value !== target; } });
  const message = h("p", { role: "alert" });
  const go = h("button", { type: "submit", class: `primary ${action === "run-service" ? "" : "danger"}`, disabled: true }, text.replace("…", ""));
  const form = h("form", { method: "dialog", onsubmit: async (event) => {
    event.preventDefault();
    go.disabled = true;
    try {
      const { done } = await call(`${context.state.path}/actions`, { method: "POST", headers: { "x-tidelock-csrf": context.session().csrf }, body: JSON.stringify({ action, target, confirm: typed.value }) });
      dialog.close();
      context.say(done);
    } catch (error) {
      message.textContent = error.message;
      go.disabled = false;
    }
  } }, h("h2", {}, text.replace("…", "")), h("p", { class: "muted" }, warning), h("label", {}, h("span", { class: "muted" }, "Type "), h("code", { class: "wrap" }, target), h("span", { class: "muted" }, " to confirm"), typed), message,
  h("div", { class: "row" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), go));
  fill(dialog, form);
  dialog.showModal();
  typed.focus();
}

export function signIn(after) {
  const token = h("input", { type: "password", "aria-label": "Token", autocomplete: "off" }), message = h("p", { role: "alert" });
  fill(dialog, h("form", { method: "dialog", onsubmit: async (event) => {
    event.preventDefault();
    try {
      const found = await call("/api/session", { method: "POST", body: JSON.stringify({ token: token.value }) });
      dialog.close();
      after(found);
    } catch (error) {
      message.textContent = error.message;
    }
  } }, h("h2", {}, "Sign in"), h("p", { class: "muted" }, "Actions need the token that this dashboard was started with."), token, message,
  h("div", { class: "row" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), h("button", { type: "submit", class: "primary" }, "Sign in"))));
  dialog.showModal();
  token.focus();
}
