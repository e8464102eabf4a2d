package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestArchivesAreReproducible checks that owners, times and the order of the files do not matter.
func TestArchivesAreReproducible(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	// archive packs files with the given times and modes, in the given order of their entries.
	archive := func(modified time.Time, mode os.FileMode, reorder func([]entry)) []byte {
		dir := t.TempDir()
		list := []entry{
			{name: "binnacle", path: write(t, filepath.Join(dir, "b"), "program"), executable: true},
			{name: "licenses/x/LICENSE", path: write(t, filepath.Join(dir, "l"), "license")},
			{name: "bill", content: []byte("bill")},
		}
		for _, f := range []string{"b", "l"} {
			path := filepath.Join(dir, f)
			if err := errors.Join(os.Chmod(path, mode), os.Chtimes(path, modified, modified)); err != nil {
				t.Fatal(err)
			}
		}
		reorder(list)
		var out bytes.Buffer
		if err := writeArchive(&out, "folder", at, list); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	firstArchive := archive(time.Unix(1, 0), 0o600, func([]entry) {})
	secondArchive := archive(time.Unix(2_000_000_000, 0), 0o755, slices.Reverse[[]entry])
	if !bytes.Equal(firstArchive, secondArchive) {
		t.Errorf("archives of equal content have different bytes (%d and %d), want equal ones", len(firstArchive), len(secondArchive))
	}
	z, err := gzip.NewReader(bytes.NewReader(firstArchive))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := tar.NewReader(z); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if !header.ModTime.Equal(at) || header.Uid != 0 || header.Uname != "" {
			t.Errorf("%s: got time %v, owner %d %q, want %v, 0 without name", header.Name, header.ModTime, header.Uid, header.Uname, at)
		}
		got = append(got, header.Name+" "+os.FileMode(header.Mode).String()+" "+string(data))
	}
	want := []string{"folder/bill -rw-r--r-- bill", "folder/binnacle -rwxr-xr-x program",
		"folder/licenses/x/LICENSE -rw-r--r-- license"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := writeArchive(io.Discard, "f", at, []entry{{name: "a"}, {name: "a"}}); err == nil {
		t.Error("writeArchive() of two files with one name = nil, want an error")
	}
}

// TestSumsHaveTheFormatOfSha256sum checks that sha256sum can read the file of checksums.
func TestSumsHaveTheFormatOfSha256sum(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a"), "")
	if err := writeSums(dir, []string{"a"}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if want := "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  a\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

const bsd = "Redistribution ... Neither the name nor ... may be used to endorse or\npromote products ..."

// TestLicensesOfAllPackagesAreCollected checks that license files are found in the folders of
// included packages and above them, and that a module without one is an error.
func TestLicensesOfAllPackagesAreCollected(t *testing.T) {
	dir := t.TempDir()
	licensed := module{
		path:     "example.com/one",
		dir:      filepath.Join(dir, "one"),
		packages: []string{filepath.Join(dir, "one", "a", "b"), filepath.Join(dir, "one", "c")},
	}
	for name, text := range map[string]string{
		"LICENSE":       "Apache License\n   Version 2.0",
		"NOTICE.txt":    "notice",
		"license.go":    "package one",
		"README.md":     "",
		"a/LICENSE-MIT": "mit",
		"a/b/b.go":      "",
		"c/COPYING":     bsd,
		"d/LICENSE":     "of a package that is not included",
	} {
		write(t, filepath.Join(licensed.dir, name), text)
	}
	got, err := collectNotices([]module{licensed})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range got.entries() {
		names = append(names, e.name)
	}
	slices.Sort(names)
	want := []string{"licenses/example.com/one/LICENSE", "licenses/example.com/one/NOTICE.txt",
		"licenses/example.com/one/a/LICENSE-MIT", "licenses/example.com/one/c/COPYING"}
	if !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	none := module{path: "example.com/none", dir: filepath.Join(dir, "none")}
	write(t, filepath.Join(none.dir, "none.go"), "package none")
	if _, err := collectNotices([]module{licensed, none}); err == nil || !strings.Contains(err.Error(),
		"example.com/none has no license") {
		t.Errorf("module without license: got %v, want the error that example.com/none has no license", err)
	}
}

// TestLicensesAreDetected checks the SPDX names for license texts.
func TestLicensesAreDetected(t *testing.T) {
	for text, want := range map[string]string{
		"Apache License\nVersion 2.0, January 2004": "Apache-2.0",
		"Apache License, Version 2.0":               "Apache-2.0",
		bsd:                                         "BSD-3-Clause",
		"Redistributions in binary form must\nreproduce the above copyright notice, and no more": "BSD-2-Clause",
		"Permission is hereby granted, free of charge, to any person":                            "MIT",
		"Mozilla Public License Version 2.0":                                                     "MPL-2.0",
		"all mine":                                                                               noAssertion,
	} {
		n := moduleNotices{"m": {{"NOTICE", "/there/is/none"}, {"LICENSE", write(t, filepath.Join(t.TempDir(), "l"), text)}}}
		if got, err := n.declaredLicense("m"); err != nil || got != want {
			t.Errorf("%q: got %s %v, want %s", text, got, err, want)
		}
	}
}

// TestBillOfMaterialsListsModulesOfBinary checks the bill of the binary of this test. Each package
// has a unique ID and a relationship.
func TestBillOfMaterialsListsModulesOfBinary(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	notices := moduleNotices{"github.com/spf13/pflag": {{"LICENSE", write(t, filepath.Join(t.TempDir(), "l"), bsd)}}}
	data, err := newSBOM("binnacle-v1-linux-amd64", self, time.Unix(0, 0), notices)
	if err != nil {
		t.Fatal(err)
	}
	var document spdxDocument
	if err := json.Unmarshal(data, &document); err != nil {
		t.Fatal(err)
	}
	if document.Version != "SPDX-2.3" || document.Creation.Created != "1970-01-01T00:00:00Z" || !strings.Contains(document.Namespace,
		"binnacle-v1-linux-amd64-") {
		t.Errorf("got %+v, want SPDX-2.3 of 1970-01-01 in the namespace of v1, linux, amd64", document)
	}
	ids, linked := map[string]bool{documentID: true}, map[string]bool{}
	for _, spdxPackage := range document.Packages {
		if ids[spdxPackage.ID] || invalidIDChars.MatchString(strings.TrimPrefix(spdxPackage.ID, "SPDXRef-")) {
			t.Errorf("got ID %s, want a unique one of allowed characters", spdxPackage.ID)
		}
		ids[spdxPackage.ID] = true
		if spdxPackage.Name == "github.com/spf13/pflag" && (spdxPackage.Declared != "BSD-3-Clause" ||
			!strings.HasPrefix(spdxPackage.References[0].Locator, "pkg:golang/github.com/spf13/pflag@v")) {
			t.Errorf("got package %+v, want license BSD-3-Clause and a locator of a version", spdxPackage)
		}
	}
	for _, relationship := range document.Relationships {
		if !ids[relationship.From] || !ids[relationship.To] {
			t.Errorf("%+v: no package, want one", relationship)
		}
		linked[relationship.To] = true
	}
	for id := range ids {
		if id != documentID && !linked[id] {
			t.Errorf("%s: no relationship, want one", id)
		}
	}
	if len(document.Packages) < 3 { // the binary, the standard library and pflag
		t.Errorf("got %d packages, want at least 3", len(document.Packages))
	}
}

// TestEscapeModulePathEscapesCapitals checks that capital letters are escaped as in module proxies.
func TestEscapeModulePathEscapesCapitals(t *testing.T) {
	if got := escapeModulePath("github.com/Azure/go-ansiterm"); got != "github.com/!azure/go-ansiterm" {
		t.Errorf("escapeModulePath() = %q, want github.com/!azure/go-ansiterm", got)
	}
}
