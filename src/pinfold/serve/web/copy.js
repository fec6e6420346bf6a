// Buttons that copy what people would retype: a command, or settings as YAML.

import { make, visible } from "./text.js";

const SHOWN = 1500;
const PLAIN = /^[\w./:=,-]+$/;

/** A command for a shell; names come from pods and are untrusted. */
export function command(...words) {
  return words.map((word) => (PLAIN.test(word) ? word : `'${visible(word).replaceAll("'", "'\\''")}'`)).join(" ");
}

/** A button that copies a text. */
export function copyButton(text, label = "Copy") {
  const button = make("button", { type: "button", class: "copy", title: text.slice(0, 2000) }, label);
  button.addEventListener("click", async (event) => {
    event.stopPropagation();
    const done = await copy(text);
    button.textContent = done ? "Copied" : "Not copied";
    setTimeout(() => (button.textContent = label), SHOWN);
  });
  return button;
}

/** A command with a button beside it. */
export const copied = (text) => make("p", { class: "command" }, make("code", {}, text), copyButton(text));

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyByHand(text); // a page over plain HTTP from another machine has no clipboard
  }
}

function copyByHand(text) {
  const area = make("textarea", { class: "hidden", "aria-hidden": "true" });
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

/** The settings of a daemon as a KubeletConfiguration; text in quotes of JSON is YAML too. */
export function kubeletConfiguration(config) {
  const lines = ["apiVersion: kubelet.config.k8s.io/v1beta1", "kind: KubeletConfiguration"];
  const add = (name, value) => value && value !== "none" && value !== "container" && lines.push(`${name}: ${JSON.stringify(value)}`);
  const table = (name, values) => {
    const rows = Object.entries(values ?? {});
    if (rows.length) lines.push(`${name}:`, ...rows.map(([key, value]) => `  ${key}: ${JSON.stringify(value)}`));
  };
  add("cpuManagerPolicy", config.policy);
  table("cpuManagerPolicyOptions", config.options);
  add("reservedSystemCPUs", config.reserved);
  add("topologyManagerPolicy", config.topology_policy);
  add("topologyManagerScope", config.topology_scope);
  table("topologyManagerPolicyOptions", config.topology_options);
  table("featureGates", config.feature_gates);
  return `${lines.join("\n")}\n`;
}
