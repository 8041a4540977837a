// The JSON API, from its own description.
import { h, pairs, show } from "./dom.js";

export async function open(page) {
  document.title = "API · pulsetrain";
  const response = await fetch("/api/v1/openapi.json");
  const described = await response.json();
  show(page, h("h1", {}, "API"), h("p", {}, described.info.description, " The description for programs: ", h("a", { href: "/api/v1/openapi.json", target: "_blank" }, "openapi.json"), "."),
    Object.entries(described.paths).map(([path, ways]) => Object.entries(ways).map(([method, { summary, parameters }]) => h("section", { class: "section" }, h("h2", {}, h("code", {}, `${method.toUpperCase()} ${path}`)), h("p", {}, summary),
      parameters.length ? pairs(parameters.map((one) => [h("code", {}, one.name), parameter(one)])) : null))));
}

function parameter({ required, schema }) {
  const kinds = (schema.anyOf ?? [schema]).map((one) => one.type).filter((type) => type && type !== "null");
  const limits = schema.maximum !== undefined ? `${schema.minimum} to ${schema.maximum}` : "";
  return [kinds.join(" or "), required ? "required" : "optional", limits, schema.description ?? schema.items?.description ?? schema.anyOf?.[0]?.description].filter(Boolean).join(", ");
}
