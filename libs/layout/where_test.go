package layout

import (
	"go/parser"
	"go/token"
	"io/fs"
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
	for _, match := range regexp.MustCompile("`([a-z0-9_./-]+)`").FindAllStringSubmatch(string(page), -1) {
		path := match[1]
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

// TestIdentifiersOfWhereExist checks that the identifiers in a row of docs/dev/where.md occur in a
// file of the row.
func TestIdentifiersOfWhereExist(t *testing.T) {
	root := moduleRoot(t)
	page, err := os.ReadFile(filepath.Join(root, "docs", "dev", "where.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for row := range strings.Lines(string(page)) {
		change, places, ok := strings.Cut(strings.Trim(row, "|\n "), " | ")
		if !ok {
			continue
		}
		source := sourceOf(t, root, places)
		for _, match := range regexp.MustCompile("`([A-Za-z][A-Za-z0-9]*)`").FindAllStringSubmatch(places, -1) {
			if exists(filepath.Join(root, match[1])) || exists(filepath.Join(root, "services", "apiserver", "internal", match[1])) {
				continue // a folder
			}
			found++
			if !strings.Contains(source, match[1]) {
				t.Errorf("%s: no file of the row contains %s", change, match[1])
			}
		}
	}
	if found < 5 {
		t.Errorf("found %d identifiers, expected at least 5", found)
	}
}

// sourceOf returns the content of the Go files that a row of docs/dev/where.md names.
func sourceOf(t *testing.T, root, row string) string {
	t.Helper()
	var source strings.Builder
	for _, match := range regexp.MustCompile("`([a-z0-9_./-]+/[a-z0-9_./-]+)`").FindAllStringSubmatch(row, -1) {
		for _, base := range []string{root, filepath.Join(root, "services", "apiserver", "internal")} {
			path := filepath.Join(base, match[1])
			if info, err := os.Stat(path); err != nil {
				continue
			} else if info.IsDir() {
				path = filepath.Join(path, "*.go")
			}
			files, err := filepath.Glob(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				data, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				source.Write(data)
			}
		}
	}
	return source.String()
}

// notPackages are words that follow "package" in comments without naming one.
var notPackages = regexp.MustCompile(`^(a|also|and|are|as|below|belongs|by|call|calls|contains|decides|does|doc|for|has|in|is|itself|keeps|knows|may|must|of|only|path|returns|runs|take|takes|that|to|uses|with)$`)

// TestPackageCommentsNameWhatExists checks that the files and packages that package comments name
// exist. A file name is one of the package.
func TestPackageCommentsNameWhatExists(t *testing.T) {
	root := moduleRoot(t)
	comments, names := map[string]string{}, map[string]bool{"time": true} // by file
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		names[file.Name.Name] = true
		if file.Doc != nil {
			comments[path] = strings.Join(strings.Fields(file.Doc.Text()), " ")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	files := regexp.MustCompile(`\b[a-z0-9_]+\.go\b`)
	packages := regexp.MustCompile(`\b[Pp]ackage ([a-z][a-z0-9]*)\b`)
	for path, comment := range comments {
		short, _ := filepath.Rel(root, path)
		for _, name := range files.FindAllString(comment, -1) {
			if !exists(filepath.Join(filepath.Dir(path), name)) {
				t.Errorf("%s names the file %s, which does not exist", short, name)
			}
		}
		for _, match := range packages.FindAllStringSubmatch(comment, -1) {
			if !names[match[1]] && !notPackages.MatchString(match[1]) {
				t.Errorf("%s names the package %s, which does not exist", short, match[1])
			}
		}
	}
}

// exists reports whether a file or folder exists.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
