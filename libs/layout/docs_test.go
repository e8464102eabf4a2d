package layout

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var namedFile = regexp.MustCompile("`([a-z0-9][a-z0-9_/.-]*\\.go)`")

// files returns the files below folder whose names end in suffix, with their content. It omits
// tests.
func files(t *testing.T, folder, suffix string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(filepath.Join("..", "..", folder), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, suffix) || strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		out[filepath.ToSlash(path)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestDocumentationNamesFiles checks that source files named in the documentation exist.
func TestDocumentationNamesFiles(t *testing.T) {
	root := filepath.Join("..", "..")
	var sources []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".go") {
			sources = append(sources, filepath.ToSlash(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	paths := strings.Join(sources, "\n") + "\n"
	named := 0
	for page, text := range files(t, "docs", ".md") {
		for _, match := range namedFile.FindAllStringSubmatch(text, -1) {
			named++
			if !strings.Contains(paths, "/"+match[1]+"\n") {
				t.Errorf("%s names the file %s, which does not exist", page, match[1])
			}
		}
	}
	if named < 20 {
		t.Errorf("the documentation names %d files, want at least 20", named)
	}
}
