//! The description of the API, made of the routes and their types.

use std::collections::BTreeMap;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::api::{Method, Route, SchemaOf};
use super::problem::Failed;
use super::routes;

/// The description in the form of OpenAPI 3.1, as `docs/openapi.json` has it.
pub fn open_api() -> Value {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut generator = settings.into_generator();
    let mut paths: Map<String, Value> = Map::new();
    for route in routes::all() {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        let method = match route.method {
            Method::Get => "get",
            Method::Post => "post",
            Method::Delete => "delete",
        };
        path[method] = operation(&route, &mut generator);
    }
    let failed = generator.subschema_for::<Failed>();
    let schemas = generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "checkrein",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Profiles, sessions, stops and the tree of work of a host. See docs/api.md.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {
                "Problem": {
                    "description": "Anything but the wanted answer. `kind` is what to decide by.",
                    "content": { "application/json": { "schema": failed } },
                },
            },
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer" },
                "ticket": { "type": "http", "scheme": "ticket" },
            },
        },
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let mut responses = Map::new();
    for answer in &route.answers {
        let schema = (answer.schema)(generator);
        let mut response = json!({ "description": "The wanted answer." });
        if answer.status != 204 {
            response["content"] = json!({ answer.media: { "schema": schema } });
        }
        responses.insert(answer.status.to_string(), response);
    }
    for (status, kinds) in wrong(route) {
        let content = json!({ "$ref": "#/components/schemas/Failed" });
        let content = json!({ "application/json": { "schema": content } });
        let described = json!({ "description": format!("{kinds}."), "content": content });
        responses.entry(status.to_string()).or_insert(described);
    }
    responses.insert("default".to_owned(), json!({ "$ref": "#/components/responses/Problem" }));
    let mut operation = json!({ "summary": route.does, "responses": responses });
    let mut parameters = names(route.path);
    if let Some(query) = route.query {
        parameters.extend(asked(query));
    }
    if let Some((name, says, header)) = route.header {
        let schema = header(generator);
        parameters.push(json!({ "name": name, "in": "header", "required": false, "description": says, "schema": schema }));
    }
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some((media, body)) = route.body {
        let schema = body(generator);
        operation["requestBody"] =
            json!({ "required": true, "content": { media: { "schema": schema } } });
    }
    if let Some(verb) = route.verb {
        let mut ways = vec![json!({}), json!({ "token": [verb.as_str()] })];
        ways.extend(route.ticket.map(|purpose| json!({ "ticket": [purpose.as_str()] })));
        operation["security"] = ways.into();
    }
    operation
}

/// The statuses of what can go wrong, each with its kinds.
fn wrong(route: &Route) -> BTreeMap<u16, String> {
    let mut all: BTreeMap<u16, String> = BTreeMap::new();
    for kind in route.problems() {
        let kinds = all.entry(kind.status()).or_default();
        if !kinds.is_empty() {
            kinds.push_str(", ");
        }
        kinds.push_str(&format!("`{}`", kind.as_str()));
    }
    all
}

/// The names in a path.
fn names(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|step| step.strip_prefix('{')?.strip_suffix('}'));
    let parameter = |name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } });
    names.map(parameter).collect()
}

/// What can stand behind `?`.
fn asked(query: SchemaOf) -> Vec<Value> {
    let mut inline = SchemaSettings::draft2020_12();
    inline.inline_subschemas = true;
    let schema = query(&mut inline.into_generator());
    let properties = schema.get("properties").and_then(Value::as_object).cloned();
    let parameter = |(name, schema): (String, Value)| json!({ "name": name, "in": "query", "required": false, "schema": schema });
    properties.unwrap_or_default().into_iter().map(parameter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::ProblemKind;

    const PAGE: &str = include_str!("../../../docs/api.md");

    #[test]
    fn the_page_about_the_api_has_every_route_and_every_kind_of_problem() {
        for route in routes::all() {
            assert!(PAGE.contains(route.path), "{}", route.path);
        }
        for kind in ProblemKind::ALL {
            let row = format!("| `{}` | {} |", kind.as_str(), kind.status());
            assert!(PAGE.contains(&row), "{row}");
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
    }
}
