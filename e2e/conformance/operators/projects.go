package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"binnacle/e2e/conformance/comparison"
)

// project is a Go module with definitions of custom resources. Patterns are those of filepath.Glob.
// They select files of the module, and folders with all files below.
type project struct {
	Name        string
	Module      string // with its version
	Definitions []string
	Samples     []string
	// Own are patterns of samples in this repository, for modules that have too few.
	Own []string
	// Suites are packages with tests that use envtest.
	Suites []string
}

func readProjects(file string) ([]project, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var out []project
	if err := yaml.UnmarshalStrict(text, &out); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return out, nil
}

// download returns the folder of the module in the module cache.
func (p project) download(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp("", "module")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", p.Module)
	cmd.Dir = dir // has no go.mod
	out, err := cmd.Output()
	var found struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &found); jsonErr != nil {
		return "", fmt.Errorf("download %s: %w", p.Module, errors.Join(err, jsonErr))
	}
	if found.Error != "" {
		return "", errors.New(found.Error)
	}
	return found.Dir, err
}

// object is an object of a file.
type object struct {
	file    string // relative to the module
	content map[string]any
}

func (o object) text(path string) string {
	s, _ := comparison.Lookup(o.content, path).(string)
	return s
}

// load downloads a project and reads its definitions and at most limit samples of each version.
func (p project) load(ctx context.Context, limit int) (*projectObjects, error) {
	dir, err := p.download(ctx)
	if err != nil {
		return nil, err
	}
	c := &projectObjects{project: p}
	found, err := objects(dir, p.Definitions)
	if err != nil {
		return nil, err
	}
	for _, o := range found {
		if o.text("kind") == "CustomResourceDefinition" && o.text("apiVersion") == "apiextensions.k8s.io/v1" &&
			o.text("spec.group") != "" && !c.defines(o.text("metadata.name")) {
			c.definitions = append(c.definitions, withoutConversion(o))
		}
	}
	if len(c.definitions) == 0 {
		return nil, errors.New("no definitions")
	}
	samples, err := objects(dir, p.Samples)
	if err != nil {
		return nil, err
	}
	own, err := objects("", p.Own)
	if err != nil {
		return nil, err
	}
	c.addSamples(append(own, samples...), limit)
	return c, nil
}

// withoutConversion returns a definition whose versions differ in their schema only, because no
// conversion webhook runs.
func withoutConversion(o object) object {
	if spec, ok := o.content["spec"].(map[string]any); ok {
		delete(spec, "conversion")
	}
	delete(o.content, "status")
	return o
}

// objects returns the objects of the files that match patterns, in the order of their names.
func objects(dir string, patterns []string) ([]object, error) {
	var out []object
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", pattern, err)
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("%s matches no file", pattern)
		}
		for _, root := range found {
			err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
				if err != nil || e.IsDir() || !slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(path)) {
					return err
				}
				text, err := os.ReadFile(path)
				for _, content := range documents(text) {
					out = append(out, object{file: strings.TrimPrefix(strings.TrimPrefix(path, dir), "/"), content: content})
				}
				return err
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// actions match actions of templates, actionLines those that are the only content of their line.
var (
	actions     = regexp.MustCompile(`\{\{[^}]*\}\}`)
	actionLines = regexp.MustCompile(`(?m)^[ \t]*\{\{[^}]*\}\}[ \t]*$`)
)

// documents returns the objects of a YAML file and of its lists. It leaves out what is no object.
func documents(text []byte) []map[string]any {
	text = actions.ReplaceAll(actionLines.ReplaceAll(text, nil), []byte("template"))
	var out []map[string]any
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := reader.Read()
		if err != nil {
			return out
		}
		var content map[string]any
		if yaml.Unmarshal(document, &content) != nil || content["kind"] == nil {
			continue
		}
		content, _ = comparison.RoundTrip(content).(map[string]any)
		if items, ok := content["items"].([]any); ok && content["kind"] == "List" {
			for _, item := range items {
				if item, ok := item.(map[string]any); ok {
					out = append(out, item)
				}
			}
			continue
		}
		out = append(out, content)
	}
}
