package layout

import (
	"go/build"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// maxEntries is the largest number of entries at one level: files with production code, and
// folders.
const maxEntries = 12

// levelLimits returns the most entries of the levels that may have more than maxEntries. Registries
// have one file or folder for each of their entries.
func levelLimits() map[string]int {
	const internal = "services/apiserver/internal"
	return map[string]int{
		"libs":                          40,
		internal:                        len(groups()),
		internal + "/admission/plugins": 40,
		internal + "/api/kinds":         30,
		internal + "/api/kinds/core":    30,
		internal + "/api/kinds/podspec": 16,
	}
}

// packagesBelow returns the folders with production code below a folder of the module, and their
// parents, with the number of entries. Paths are relative to the module.
func packagesBelow(t *testing.T, below string) map[string]int {
	t.Helper()
	root := moduleRoot(t)
	entries := map[string]int{}
	has := func(dir string) bool { _, ok := entries[dir]; return ok }
	err := filepath.WalkDir(filepath.Join(root, below), func(name string, dirEntry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if dirEntry.IsDir() {
			if dirEntry.Name() == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") {
			return nil
		}
		dir := path.Dir(rel)
		for at := dir; at != below && !has(at); at = path.Dir(at) {
			entries[at] = 0
			entries[path.Dir(at)]++
		}
		entries[dir]++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// TestLevelsAreSmall checks that each level has few entries, so that a reader finds a feature by
// names.
func TestLevelsAreSmall(t *testing.T) {
	limits := levelLimits()
	levels := 0
	for _, below := range []string{"services", "libs", "deploy", "cmd"} {
		for dir, n := range packagesBelow(t, below) {
			levels++
			if dir == "libs/serving/h2" {
				n-- // h2diff has only tests
			}
			limit := maxEntries
			if l, ok := limits[dir]; ok {
				limit = l
			}
			if n > limit {
				t.Errorf("%s has %d files and folders, at most %d are allowed", dir, n, limit)
			}
		}
	}
	if levels < 100 {
		t.Errorf("found %d levels, want at least 100", levels)
	}
}

// TestPackageNamesAreUnique checks that no two packages that one service may import have the same
// name. Names of API versions, and of commands, repeat.
func TestPackageNamesAreUnique(t *testing.T) {
	root := moduleRoot(t)
	named := func(below string) map[string]string {
		out := map[string]string{}
		for dir := range packagesBelow(t, below) {
			found, err := build.ImportDir(filepath.Join(root, dir), 0)
			if err != nil || found.Name == "main" || strings.HasPrefix(found.Name, "v1") {
				continue
			}
			if first, ok := out[found.Name]; ok {
				t.Errorf("%s and %s have the same name", first, dir)
			}
			out[found.Name] = dir
		}
		return out
	}
	libs := named("libs")
	services, err := filepath.Glob(filepath.Join(root, "services", "*"))
	if err != nil || len(services) == 0 {
		t.Fatalf("no services: %v", err)
	}
	for _, service := range services {
		for name, dir := range named("services/" + filepath.Base(service)) {
			if lib, ok := libs[name]; ok {
				t.Errorf("%s and %s have the same name", lib, dir)
			}
		}
	}
}
