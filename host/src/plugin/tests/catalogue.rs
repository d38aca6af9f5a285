//! Folders of plugins, as they are found in the wild.

use std::fs;
use std::path::Path;

use super::super::{
    Catalogue, Digest, Embedded, FileError, ManifestError, NoPlugin, Plugin, PluginError, Source,
};
use super::{HEAD, configuration};

const EMBEDDED: Embedded = Embedded { manifest: HEAD, component: b"embedded" };

/// Puts a plugin of that name into a folder of that name.
fn put(home: &Path, folder: &str, name: &str, component: &[u8]) {
    let folder = home.join(folder);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("plugin.toml"), HEAD.replace("\"probe\"", &format!("\"{name}\"")))
        .unwrap();
    fs::write(folder.join("probe.wasm"), component).unwrap();
}

fn gathered(configuration_text: &str, home: &Path) -> Catalogue {
    let text = configuration_text.replace("HOME", home.to_str().unwrap());
    Catalogue::gather(&configuration(&text), &[EMBEDDED])
}

fn component_error(error: PluginError) -> FileError {
    match error {
        PluginError::Component { source, .. } => source,
        PluginError::Manifest(ManifestError::File(source)) | PluginError::Folder(source) => source,
        PluginError::Manifest(error) => panic!("{error}"),
        PluginError::OtherName { found, .. } => panic!("{found}"),
    }
}

#[test]
fn a_plugin_is_found_and_its_component_read_and_named_by_its_digest() {
    let home = tempfile::tempdir().unwrap();
    put(home.path(), "a", "alpha", b"bytes");
    let catalogue = gathered("plugin-directories = [\"HOME\"]", home.path());
    let names: Vec<_> = catalogue.plugins().map(|plugin| plugin.name().as_str()).collect();
    assert_eq!(names, ["alpha", "probe"]);
    let alpha = catalogue.get("alpha").unwrap();
    assert_eq!((alpha.size(), alpha.source()), (5, &Source::Folder(home.path().join("a"))));
    let component = alpha.load().unwrap();
    assert_eq!(&component.bytes[..], b"bytes");
    assert_eq!(
        Digest::of(b"").to_string(),
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    );
    assert_eq!(component.digest, Digest::of(b"bytes"));
    assert_eq!(&catalogue.get("probe").unwrap().load().unwrap().bytes[..], b"embedded");
}

#[test]
fn the_operators_word_decides_between_plugins_of_one_name() {
    let home = tempfile::tempdir().unwrap();
    put(home.path(), "one/probe", "probe", b"one");
    put(home.path(), "two/probe", "probe", b"two");
    put(home.path(), "mine", "probe", b"mine");
    let bytes = |catalogue: &Catalogue| catalogue.get("probe").unwrap().load().unwrap().bytes;
    let directories = "plugin-directories = [\"HOME/two\", \"HOME/one\"]\n";
    let catalogue = gathered(directories, home.path());
    assert_eq!(&bytes(&catalogue)[..], b"two");
    assert_eq!(catalogue.hidden().len(), 2);
    assert!(matches!(catalogue.hidden()[1].source(), Source::Embedded(_)));
    let catalogue = gathered(
        &format!("{directories}[plugins.probe]\npath = \"HOME/mine/plugin.toml\"\n"),
        home.path(),
    );
    assert_eq!(&bytes(&catalogue)[..], b"mine");
    assert_eq!(catalogue.hidden().len(), 3);

    let mut catalogue = Catalogue::default();
    assert_eq!(catalogue.add_path(&home.path().join("one/probe")).unwrap().as_str(), "probe");
    catalogue.add_embedded(&[EMBEDDED]);
    assert_eq!(&bytes(&catalogue)[..], b"one");
}

#[test]
fn a_broken_plugin_does_not_hide_the_others() {
    let home = tempfile::tempdir().unwrap();
    put(home.path(), "good", "good", b"x");
    put(home.path(), "lost", "lost", b"x");
    fs::remove_file(home.path().join("lost/probe.wasm")).unwrap();
    fs::create_dir(home.path().join("bad")).unwrap();
    fs::write(home.path().join("bad/plugin.toml"), [0, 0xff, 0xfe]).unwrap();
    fs::create_dir(home.path().join("no-plugin")).unwrap();
    fs::write(home.path().join("file"), "x").unwrap();
    let catalogue = gathered("plugin-directories = [\"HOME\", \"HOME/missing\"]", home.path());
    assert!(catalogue.get("good").is_ok());
    let broken: Vec<_> =
        catalogue.broken().iter().map(|b| b.name.as_ref().map(ToString::to_string)).collect();
    assert_eq!(broken, [Some("bad".to_owned()), Some("lost".to_owned()), None]);
    assert!(matches!(catalogue.get("lost"), Err(NoPlugin::Broken { .. })));
    assert_eq!(
        catalogue.get("god").unwrap_err().to_string(),
        "there is no plugin called `god`; did you mean `good`?"
    );
    assert_eq!(
        catalogue.get("\x1b").unwrap_err().to_string(),
        "there is no plugin called `\\u{1b}`"
    );
}

#[test]
fn no_other_plugin_takes_the_name_of_a_broken_one() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("probe")).unwrap();
    fs::write(home.path().join("probe/plugin.toml"), "nonsense").unwrap();
    put(home.path(), "other", "other", b"x");
    for text in [
        "plugin-directories = [\"HOME\"]",
        "[plugins.probe]\npath = \"HOME/nowhere\"",
        "[plugins.probe]\npath = \"HOME/other\"",
    ] {
        let catalogue = gathered(text, home.path());
        assert!(matches!(catalogue.get("probe"), Err(NoPlugin::Broken { .. })), "{text}");
        assert_eq!(catalogue.hidden().len(), 1);
    }
}

#[test]
fn a_table_for_a_plugin_that_is_not_there_is_found_out() {
    let home = tempfile::tempdir().unwrap();
    let read = configuration(
        "[plugins.prob.limits]\nmemory = 1\n[plugins.probe]\n[plugins.lost]\npath = \"/nowhere\"\n",
    );
    let catalogue = Catalogue::gather(&read, &[EMBEDDED]);
    let strangers: Vec<_> = catalogue.strangers(&read).map(|error| error.to_string()).collect();
    assert_eq!(strangers, ["there is no plugin called `prob`; did you mean `probe`?"]);
    assert!(gathered("plugin-directories = [\"HOME\"]", home.path()).broken().is_empty());
}

#[test]
fn a_large_component_is_refused_by_its_size_before_it_is_read() {
    let home = tempfile::tempdir().unwrap();
    put(home.path(), "a", "alpha", b"");
    let file = fs::File::options().write(true).open(home.path().join("a/probe.wasm")).unwrap();
    file.set_len(100_000_000).unwrap();
    let error = component_error(Plugin::open(&home.path().join("a"), 64 << 20).unwrap_err());
    assert!(matches!(error, FileError::TooLarge { most: 67_108_864, .. }), "{error}");
    let plugin = Plugin::open(&home.path().join("a"), 100_000_000).unwrap();
    file.set_len(100_000_001).unwrap();
    assert!(matches!(component_error(plugin.load().unwrap_err()), FileError::TooLarge { .. }));
}

#[cfg(unix)]
#[test]
fn nothing_is_reached_outside_the_folder() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("outside"), "secret").unwrap();
    put(home.path(), "a", "alpha", b"x");
    let inside = home.path().join("a/probe.wasm");
    for target in ["../outside", "/etc/passwd", home.path().join("outside").to_str().unwrap()] {
        fs::remove_file(&inside).unwrap();
        std::os::unix::fs::symlink(target, &inside).unwrap();
        let error = component_error(Plugin::open(&home.path().join("a"), 1000).unwrap_err());
        assert!(matches!(error, FileError::Outside { .. }), "{target}: {error:?}");
    }
    fs::remove_file(&inside).unwrap();
    fs::write(home.path().join("a/real.wasm"), "y").unwrap();
    std::os::unix::fs::symlink("real.wasm", &inside).unwrap();
    assert_eq!(
        &Plugin::open(&home.path().join("a"), 1000).unwrap().load().unwrap().bytes[..],
        b"y"
    );

    fs::remove_file(home.path().join("a/plugin.toml")).unwrap();
    std::os::unix::fs::symlink("../outside", home.path().join("a/plugin.toml")).unwrap();
    assert!(matches!(
        component_error(Plugin::open(&home.path().join("a"), 1000).unwrap_err()),
        FileError::Outside { .. }
    ));
}

/// A pipe or a device would hold whoever opens it: this test ends at all only if none is waited for.
#[cfg(unix)]
#[test]
fn pipes_devices_and_folders_are_not_read() {
    let home = tempfile::tempdir().unwrap();
    put(home.path(), "a", "alpha", b"x");
    let open = || component_error(Plugin::open(&home.path().join("a"), 1000).unwrap_err());
    for file in ["a/probe.wasm", "a/plugin.toml"] {
        let path = home.path().join(file);
        fs::remove_file(&path).unwrap();
        pipe(&path);
        assert!(matches!(open(), FileError::NotRegular { .. }));
        assert!(
            matches!(super::super::Configuration::load(&path).unwrap_err().to_string(), text if text.contains("not a regular file"))
        );
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(matches!(open(), FileError::NotRegular { .. }));
    }
    assert!(super::super::Configuration::load(Path::new("/dev/zero")).is_err());
}

/// Between the look at a plugin and the reading of its component, the file has become a pipe.
#[cfg(unix)]
#[test]
fn a_component_that_becomes_a_pipe_is_not_waited_for() {
    let home = tempfile::tempdir().unwrap();
    put(home.path(), "a", "alpha", b"x");
    let plugin = Plugin::open(&home.path().join("a"), 1000).unwrap();
    fs::remove_file(home.path().join("a/probe.wasm")).unwrap();
    pipe(&home.path().join("a/probe.wasm"));
    assert!(matches!(component_error(plugin.load().unwrap_err()), FileError::NotRegular { .. }));
}

#[cfg(unix)]
fn pipe(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}
