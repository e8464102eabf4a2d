package configuration

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"binnacle/libs/filewatch"
)

// File is the admission configuration, by the names of plugins. The zero value and nil configure
// nothing.
type File struct{ plugins map[string]pluginConfig }

// pluginConfig is the configuration of one plugin. If inline is set, it is the configuration.
// Otherwise path names the file that contains it. If both are empty, the plugin has no
// configuration.
type pluginConfig struct {
	inline json.RawMessage
	path   string
}

// document is the AdmissionConfiguration as it is serialized.
type document struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"`
	Plugins    []documentPlugin `json:"plugins"`
}

// documentPlugin is an element of the list plugins in a document.
type documentPlugin struct {
	Name          string          `json:"name"`
	Path          string          `json:"path"`
	Configuration json.RawMessage `json:"configuration"`
}

const kind = "AdmissionConfiguration"

// Load reads the file at path. known lists the plugins that the file may configure. If path is
// empty, Load returns nil, which configures nothing. The files to which the file refers are read
// later, by ForPlugin.
func Load(path string, known []string) (*File, error) {
	if path == "" {
		return nil, nil
	}
	data, err := filewatch.Read(path)
	if err != nil {
		return nil, fmt.Errorf("unable to read admission control configuration from %q [%w]", path, err)
	}
	var d document
	err = Decode(data, &d,
		schema.GroupVersionKind{Group: "apiserver.config.k8s.io", Version: "v1", Kind: kind},
		schema.GroupVersionKind{Group: "apiserver.k8s.io", Version: "v1alpha1", Kind: kind})
	if runtime.IsMissingKind(err) || runtime.IsMissingVersion(err) || runtime.IsNotRegisteredError(err) {
		if f := parseVersionless(path, data); f != nil {
			return f, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return d.toFile(filepath.Dir(path), known)
}

// toFile returns the configuration of each plugin in the document. Relative paths in the document
// are relative to folder.
func (d *document) toFile(folder string, known []string) (*File, error) {
	file := &File{plugins: map[string]pluginConfig{}}
	for i, plugin := range d.Plugins {
		_, twice := file.plugins[plugin.Name]
		switch {
		case !slices.Contains(known, plugin.Name):
			return nil, fmt.Errorf("plugins[%d].name: admission plugin %q is unknown", i, plugin.Name)
		case twice:
			return nil, fmt.Errorf("plugins[%d].name: admission plugin %q is configured twice", i, plugin.Name)
		}
		p := pluginConfig{path: plugin.Path}
		if string(plugin.Configuration) != "null" {
			p.inline = plugin.Configuration
		}
		if p.path != "" && !filepath.IsAbs(p.path) {
			p.path = filepath.Join(folder, p.path)
		}
		file.plugins[plugin.Name] = p
	}
	return file, nil
}

// parseVersionless returns a File if data is the versionless configuration of ImagePolicyWebhook or
// PodNodeSelector, otherwise nil. The top-level key shows which plugin it configures. path is the
// file that contains data.
func parseVersionless(path string, data []byte) *File {
	var fields map[string]any
	if yaml.Unmarshal(data, &fields) != nil {
		return nil
	}
	file := &File{plugins: map[string]pluginConfig{}}
	for key, plugin := range map[string]string{"imagePolicy": "ImagePolicyWebhook", "podNodeSelectorPluginConfig": "PodNodeSelector"} {
		if _, ok := fields[key]; ok {
			file.plugins[plugin] = pluginConfig{path: path}
		}
	}
	if len(file.plugins) > 0 {
		return file
	}
	return nil
}

// ForPlugin returns the configuration of a plugin as it was written, in JSON or YAML, or nil if
// there is none. It reads the plugin's file, if the configuration names one.
func (f *File) ForPlugin(plugin string) ([]byte, error) {
	if f == nil {
		return nil, nil
	}
	pluginConfig := f.plugins[plugin]
	if pluginConfig.inline != nil || pluginConfig.path == "" {
		return pluginConfig.inline, nil
	}
	data, err := filewatch.Read(pluginConfig.path)
	if err != nil {
		return nil, fmt.Errorf("couldn't open admission plugin configuration %s: %w", pluginConfig.path, err)
	}
	return data, nil
}
