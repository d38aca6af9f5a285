//! What a tool sees of the host, and the host of a tool.

use checkrein_guest::prelude::*;
use checkrein_guest::testing::ToolTest;

/// A request to the weather service.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct Arguments {
    /// The place, in words.
    place: String,
    /// How many days.
    #[serde(default = "one")]
    days: u8,
    /// The unit of temperatures.
    unit: Option<Unit>,
}

#[derive(Deserialize, JsonSchema, Debug)]
#[serde(rename_all = "lowercase")]
enum Unit {
    Celsius,
    Fahrenheit,
}

fn one() -> u8 {
    1
}

#[derive(Deserialize)]
struct Config {
    server: String,
    retries: u32,
}

struct Weather;

impl Tool for Weather {
    const NAME: &str = "weather";
    const DESCRIPTION: &str = "Says how the weather will be.";
    const HINTS: &[Hint] = &[Hint::ReadOnly, Hint::OpenWorld];
    type Arguments = Arguments;

    fn call(arguments: Arguments, cx: &ToolContext) -> Result<Output, Failure> {
        let config: Config = cx.config()?;
        let key = cx.secret("weather-key")?;
        cx.info(&format!("asking {}", config.server));
        let unit = arguments.unit.unwrap_or(Unit::Celsius);
        Ok(format!(
            "{} {} {unit:?} {} {}",
            arguments.place,
            arguments.days,
            config.retries,
            key.len()
        )
        .into())
    }
}

struct Ping;

impl Tool for Ping {
    const NAME: &str = "ping";
    const DESCRIPTION: &str = "Answers.";
    type Arguments = NoArguments;

    fn call(_: NoArguments, _: &ToolContext) -> Result<Output, Failure> {
        Ok("pong".into())
    }
}

tools!(Weather, Ping);

fn weather() -> ToolTest {
    ToolTest::new()
        .config("server", "https://example.org")
        .config("retries", 3)
        .secret("weather-key", "abc")
}

#[test]
fn a_tool_reads_its_arguments_configuration_and_secrets() {
    let test = weather();
    let output = test.call::<Weather>(json!({"place": "Rome", "unit": "fahrenheit"})).unwrap();
    assert_eq!(output, "Rome 1 Fahrenheit 3 3");
    assert_eq!(test.log(), [(Level::Info, "asking https://example.org".to_owned())]);
}

#[test]
fn a_tool_describes_itself_to_a_model() {
    let spec = ToolTest::describe::<Weather>();
    assert_eq!(spec.name, "weather");
    assert!(
        spec.has_hint(Hint::ReadOnly)
            && spec.has_hint(Hint::OpenWorld)
            && !spec.has_hint(Hint::Destructive)
    );
    let schema: Value = serde_json::from_str(&spec.parameters).unwrap();
    assert_eq!(
        schema,
        json!({
            "type": "object",
            "properties": {
                "place": {"description": "The place, in words.", "type": "string"},
                "days": {
                    "description": "How many days.", "type": "integer",
                    "minimum": 0, "maximum": 255, "default": 1
                },
                "unit": {
                    "description": "The unit of temperatures.",
                    "type": ["string", "null"],
                    "enum": ["celsius", "fahrenheit", null]
                }
            },
            "required": ["place"]
        })
    );
}

#[test]
fn arguments_that_do_not_fit_are_a_failure_that_says_why() {
    let failure = weather().call::<Weather>(json!({"place": 7})).unwrap_err();
    assert_eq!(failure.code, Failure::INVALID);
    assert!(
        failure.message.contains("`weather`") && failure.message.contains("expected a string"),
        "{failure}"
    );

    let failure = weather().call::<Weather>(json!(["Rome"])).unwrap_err();
    assert_eq!(failure.code, Failure::INVALID);
    let failure = ToolTest::new().call::<Ping>(json!([])).unwrap_err();
    assert_eq!(failure.code, Failure::INVALID);
}

#[test]
fn a_configuration_that_does_not_fit_is_a_failure_that_names_the_key() {
    let test = ToolTest::new().config("server", "https://example.org").secret("weather-key", "abc");
    let failure = test.call::<Weather>(json!({"place": "Rome"})).unwrap_err();
    assert_eq!(failure.code, Failure::INVALID);
    assert!(failure.message.contains("retries"), "{failure}");
}

#[test]
fn a_secret_that_was_not_granted_is_denied() {
    let test = ToolTest::new().config("server", "https://example.org").config("retries", 3);
    let failure = test.call::<Weather>(json!({"place": "Rome"})).unwrap_err();
    assert_eq!(failure.code, Failure::DENIED);
}

#[test]
fn a_tool_can_be_called_with_its_own_types() {
    let output = Ping::call(NoArguments {}, &ToolTest::new().context()).unwrap();
    assert_eq!(output.as_str(), "pong");
}
