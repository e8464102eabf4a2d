package layout

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentationNamesFiles: a source file that the documentation names is there, in some folder.
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
	all := strings.Join(sources, "\n") + "\n"
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	told, named := regexp.MustCompile("`([a-z0-9_/.-]+\\.go)`"), 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range told.FindAllStringSubmatch(string(text), -1) {
			if named++; !strings.Contains(all, "/"+m[1]+"\n") {
				t.Errorf("%s names the file %s, which is not there", filepath.Base(page), m[1])
			}
		}
	}
	if named < 20 {
		t.Errorf("%d files are named only", named)
	}
}
