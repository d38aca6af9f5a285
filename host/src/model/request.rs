//! What is asked of a model, and what makes a request senseless before anything is sent.

use serde_json::Value;

use crate::message::{Message, Role, ToolSpec};

/// A request for one message.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Request {
    /// Another model of the same provider, as the provider names it; none for the one of the configuration.
    pub model: Option<String>,
    /// The conversation so far. Messages of role [`Role::System`] come first.
    pub messages: Vec<Message>,
    /// The tools that the model may ask for.
    pub tools: Vec<ToolSpec>,
    /// An upper bound for the answer, in tokens. The bound of the configuration wins when it is lower.
    pub max_output_tokens: Option<u32>,
    /// From 0 to 2; none for the default of the provider.
    pub temperature: Option<f64>,
}

impl Request {
    /// Says what is wrong with the request, for everything that can be seen without the endpoint.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.messages.iter().all(|message| message.role == Role::System) {
            return Err("it holds no message to answer".to_owned());
        }
        if let Some(temperature) = self.temperature
            && !(0.0..=2.0).contains(&temperature)
        {
            return Err(format!("its temperature is {temperature}, but must be from 0 to 2"));
        }
        for message in &self.messages {
            if message.role == Role::Tool && message.tool_call_id.is_none() {
                return Err(
                    "a message of role `tool` does not say which call it answers".to_owned()
                );
            }
        }
        for tool in &self.tools {
            object(&tool.parameters)
                .map_err(|reason| format!("the parameters of the tool `{}` {reason}", tool.name))?;
        }
        Ok(())
    }
}

/// JSON text that must be an object. Nothing at all and `null` stand for the empty one: that is how several models
/// call a tool that takes no arguments.
pub(super) fn object(text: &str) -> Result<Value, String> {
    if text.trim().is_empty() {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    let value: Value =
        serde_json::from_str(text).map_err(|error| format!("are not JSON: {error}"))?;
    if value.is_null() {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    if value.is_object() { Ok(value) } else { Err("are JSON, but not an object".to_owned()) }
}

/// Arguments that a model wrote and that are no JSON object, in an object: endpoints take nothing else, and the model
/// can see what it wrote when it reads that its call was refused.
pub(super) fn quoted(arguments: &str) -> Value {
    serde_json::json!({ "not-a-json-object": arguments })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::ToolCall;

    fn asking() -> Request {
        Request { messages: vec![Message::text(Role::User, "hello")], ..Request::default() }
    }

    #[test]
    fn a_plain_request_makes_sense() {
        assert_eq!(asking().check(), Ok(()));
    }

    #[test]
    fn a_request_without_anything_to_answer_is_refused() {
        let request = Request {
            messages: vec![Message::text(Role::System, "be kind")],
            ..Request::default()
        };
        assert!(request.check().is_err());
    }

    #[test]
    fn a_temperature_that_is_no_number_is_refused() {
        for temperature in [f64::NAN, -0.1, 2.1, f64::INFINITY] {
            assert!(
                Request { temperature: Some(temperature), ..asking() }.check().is_err(),
                "{temperature}"
            );
        }
    }

    #[test]
    fn arguments_in_the_history_may_be_what_a_model_got_wrong() {
        for arguments in ["{}", "", "null", "[]", "{"] {
            let call = ToolCall { id: "1".into(), name: "t".into(), arguments: arguments.into() };
            let mut request = asking();
            request
                .messages
                .push(Message { tool_calls: vec![call], ..Message::text(Role::Assistant, "") });
            assert_eq!(request.check(), Ok(()), "{arguments}");
        }
    }
}
