package configuration_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/admission/configuration"
)

// head begins configurations.
const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"

// write writes a file and returns its path.
func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestPluginsGetTheirConfiguration checks that each plugin gets the part of the file with its name,
// or the content of the file that the part refers to.
func TestPluginsGetTheirConfiguration(t *testing.T) {
	for name, test := range map[string]struct{ file, wantA, wantB string }{
		"inline": {file: head + "plugins: [{name: A, configuration: {x: 1}}]", wantA: `{"x":1}`},
		"json": {
			file:  `{"apiVersion":"apiserver.k8s.io/v1alpha1","kind":"AdmissionConfiguration","plugins":[{"name":"B","configuration":{"y":2}}]}`,
			wantB: `{"y":2}`,
		},
		"by relative path":   {file: head + "plugins: [{name: A, path: part.yaml}]", wantA: "z: 3\n"},
		"null is none":       {file: head + "plugins: [{name: A, configuration: null}]"},
		"no plugin is named": {file: head},
		"inline before":      {file: head + "plugins: [{name: A, configuration: {x: 1}, path: none.yaml}]", wantA: `{"x":1}`},
		"old node selector":  {file: "podNodeSelectorPluginConfig: {}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "part.yaml", "z: 3\n")
			f, err := configuration.Load(write(t, dir, "c.yaml", test.file), []string{"A", "B"})
			if err != nil {
				t.Fatal(err)
			}
			for plugin, want := range map[string]string{"A": test.wantA, "B": test.wantB} {
				if got, err := f.ForPlugin(plugin); err != nil || string(got) != want {
					t.Errorf("plugin %s: got %q and error %v, want %q and no error", plugin, got, err, want)
				}
			}
		})
	}
}

// TestFileWithoutVersionConfiguresOnePlugin checks that a file without the apiVersion of
// AdmissionConfiguration is the configuration of one plugin.
func TestFileWithoutVersionConfiguresOnePlugin(t *testing.T) {
	for _, typeLines := range []string{"", "kind: Old\n", "apiVersion: v1\n", "apiVersion: v1\nkind: Old\n"} {
		for plugin, content := range map[string]string{
			"PodNodeSelector":    typeLines + "podNodeSelectorPluginConfig:\n  a: b=c\n",
			"ImagePolicyWebhook": typeLines + "imagePolicy: {}\n",
		} {
			file, err := configuration.Load(write(t, t.TempDir(), "c.yaml", content), nil)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := file.ForPlugin(plugin); err != nil || string(got) != content {
				t.Errorf("plugin %s: got %q and error %v, want %q and no error", plugin, got, err, content)
			}
		}
	}
}

// TestPathOfPluginFileMayBeAbsolute checks that the path of a plugin's file may be absolute.
func TestPathOfPluginFileMayBeAbsolute(t *testing.T) {
	part := write(t, t.TempDir(), "part.yaml", "z: 3\n")
	file, err := configuration.Load(write(t, t.TempDir(), "c.yaml", head+"plugins: [{name: A, path: "+part+"}]"), []string{"A"})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := file.ForPlugin("A"); err != nil || string(got) != "z: 3\n" {
		t.Errorf("got %q and error %v, want \"z: 3\\n\" and no error", got, err)
	}
}

// TestDecodeBareRejectsInvalidDocuments checks that other types, unknown fields and invalid YAML are
// rejected.
func TestDecodeBareRejectsInvalidDocuments(t *testing.T) {
	var into struct {
		A int `json:"a"`
	}
	for text, isValid := range map[string]bool{"a: 1": true, "a: x": false, "a: b: c": false, "b: 1": false, "{": false} {
		if err := configuration.DecodeBare([]byte(text), &into); (err == nil) != isValid {
			t.Errorf("DecodeBare(%q): got error %v, want none: %t", text, err, isValid)
		}
	}
}

// TestNoFileMeansNoConfiguration checks that plugins get no configuration without a file.
func TestNoFileMeansNoConfiguration(t *testing.T) {
	file, err := configuration.Load("", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := file.ForPlugin("A"); got != nil || err != nil {
		t.Errorf("got %q and error %v, want nil and no error", got, err)
	}
}

// TestInvalidFilesAreRejected checks the error of each kind of invalid file.
func TestInvalidFilesAreRejected(t *testing.T) {
	for name, test := range map[string]struct{ file, want string }{
		"not JSON":        {file: "{", want: "couldn't get version/kind; json parse error: unexpected end of JSON input"},
		"not YAML":        {file: "a: b: c", want: "couldn't get version/kind; yaml parse error"},
		"another kind":    {file: "apiVersion: v1\nkind: Pod\n", want: `no kind "Pod" is registered for version "v1"`},
		"no kind":         {file: "apiVersion: v1\n", want: "Object 'Kind' is missing in"},
		"no version":      {file: "kind: AdmissionConfiguration\n", want: "Object 'apiVersion' is missing in"},
		"another type":    {file: head + "plugins: 1\n", want: "cannot unmarshal"},
		"unknown field":   {file: head + "plugin: []\n", want: `strict decoding error: unknown field "plugin"`},
		"unknown in part": {file: head + "plugins: [{name: A, config: {}}]\n", want: `strict decoding error: unknown field "plugins[0].config"`},
		"field twice":     {file: head + "plugins: []\nplugins: []\n", want: `already set in map`},
		"unknown plugin":  {file: head + "plugins: [{name: A}, {name: C}]\n", want: `plugins[1].name: admission plugin "C" is unknown`},
		"plugin twice":    {file: head + "plugins: [{name: A}, {name: A}]\n", want: `plugins[1].name: admission plugin "A" is configured twice`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := configuration.Load(write(t, t.TempDir(), "c.yaml", test.file), []string{"A", "B"})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one that contains %q", err, test.want)
			}
		})
	}
	none := filepath.Join(t.TempDir(), "none.yaml")
	want := `unable to read admission control configuration from "` + none + `" [open ` + none + `: no such file or directory]`
	if _, err := configuration.Load(none, nil); err == nil || err.Error() != want {
		t.Errorf("missing file: got error %v, want %s", err, want)
	}
}

// TestMissingFileOfPluginIsRejected checks that the error names the file that the configuration
// refers to.
func TestMissingFileOfPluginIsRejected(t *testing.T) {
	file, err := configuration.Load(write(t, t.TempDir(), "c.yaml", head+"plugins: [{name: A, path: none.yaml}]"), []string{"A"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.ForPlugin("A"); err == nil || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("got error %v, want one that names none.yaml", err)
	}
}

// FuzzDecode checks that Decode does not panic.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(head))
	f.Add([]byte(`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AdmissionConfiguration"}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		var into struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
		}
		kind := schema.GroupVersionKind{Group: "apiserver.config.k8s.io", Version: "v1", Kind: "AdmissionConfiguration"}
		_ = configuration.Decode(data, &into, kind) // it must not panic
	})
}
