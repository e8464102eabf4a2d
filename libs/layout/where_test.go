package layout

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPathsOfWhereExist checks that the paths in docs/dev/where.md exist. They are relative to the
// module or to the internal folder of the API server.
func TestPathsOfWhereExist(t *testing.T) {
	root := moduleRoot(t)
	page, err := os.ReadFile(filepath.Join(root, "docs", "dev", "where.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, m := range regexp.MustCompile("`([a-z0-9_./-]+)`").FindAllStringSubmatch(string(page), -1) {
		path := m[1]
		if strings.HasSuffix(path, ".go") && !strings.Contains(path, "/") {
			continue // a file name that several folders contain
		}
		if !exists(filepath.Join(root, path)) && !exists(filepath.Join(root, "services", "apiserver", "internal", path)) {
			t.Errorf("%s does not exist", path)
		}
		found++
	}
	if found < 100 {
		t.Errorf("found %d paths, expected at least 100", found)
	}
}

// exists reports whether a file or folder exists.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
