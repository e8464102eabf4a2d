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

// File is the admission configuration. The zero value and nil configure nothing.
type File struct{ parts map[string]part }

// part is the configuration of a plugin: inline, or in a file.
type part struct {
	inline json.RawMessage
	path   string
}

// document is an AdmissionConfiguration.
type document struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Plugins    []member `json:"plugins"`
}

// member is the entry of a plugin in the file.
type member struct {
	Name          string          `json:"name"`
	Path          string          `json:"path"`
	Configuration json.RawMessage `json:"configuration"`
}

const kind = "AdmissionConfiguration"

// Load reads a file. known lists the plugins that it may configure. An empty path configures
// nothing. Files to which it refers are read when a plugin requests its part.
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
		if f := versionless(path, data); f != nil {
			return f, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return d.file(filepath.Dir(path), known)
}

// file returns the configuration of each plugin in the document. folder is that of relative paths.
func (d *document) file(folder string, known []string) (*File, error) {
	f := &File{parts: map[string]part{}}
	for i, m := range d.Plugins {
		_, twice := f.parts[m.Name]
		switch {
		case !slices.Contains(known, m.Name):
			return nil, fmt.Errorf("plugins[%d].name: admission plugin %q is unknown", i, m.Name)
		case twice:
			return nil, fmt.Errorf("plugins[%d].name: admission plugin %q is configured twice", i, m.Name)
		}
		p := part{path: m.Path}
		if string(m.Configuration) != "null" {
			p.inline = m.Configuration
		}
		if p.path != "" && !filepath.IsAbs(p.path) {
			p.path = filepath.Join(folder, p.path)
		}
		f.parts[m.Name] = p
	}
	return f, nil
}

// versionless returns a File if data is the versionless configuration of one of the two plugins
// that support it, otherwise nil.
func versionless(path string, data []byte) *File {
	var fields map[string]any
	if yaml.Unmarshal(data, &fields) != nil {
		return nil
	}
	f := &File{parts: map[string]part{}}
	for key, plugin := range map[string]string{"imagePolicy": "ImagePolicyWebhook", "podNodeSelectorPluginConfig": "PodNodeSelector"} {
		if _, ok := fields[key]; ok {
			f.parts[plugin] = part{path: path}
		}
	}
	if len(f.parts) > 0 {
		return f
	}
	return nil
}

// ForPlugin returns the configuration of a plugin as it was written, or nil if there is none.
func (f *File) ForPlugin(plugin string) ([]byte, error) {
	if f == nil {
		return nil, nil
	}
	p := f.parts[plugin]
	if p.inline != nil || p.path == "" {
		return p.inline, nil
	}
	data, err := filewatch.Read(p.path)
	if err != nil {
		return nil, fmt.Errorf("couldn't open admission plugin configuration %s: %w", p.path, err)
	}
	return data, nil
}
