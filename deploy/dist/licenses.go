package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// standardLibrary is the module name of the standard library.
const standardLibrary = "std"

// module is a module of the program.
type module struct {
	path, version, dir string
	// packages holds the folders of its packages in the program.
	packages []string
}

// listModules returns the modules of the program, the standard library first.
func listModules(ctx context.Context, arch string) ([]module, error) {
	root, err := commandOutput(ctx, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-json=Dir,Standard,Module", programPath)
	cmd.Env = buildEnv(arch)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	found := map[string]*module{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg struct {
			Dir      string
			Standard bool
			Module   *struct {
				Path, Version, Dir string
				Main               bool
				Replace            *struct{ Version string }
			}
		}
		err := dec.Decode(&pkg)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		m := module{path: standardLibrary, dir: root}
		switch {
		case pkg.Standard:
		case pkg.Module == nil || pkg.Module.Main:
			continue
		case pkg.Module.Replace != nil && pkg.Module.Replace.Version == "":
			continue // a folder of this repository, which the program's license covers
		default:
			m = module{path: pkg.Module.Path, version: pkg.Module.Version, dir: pkg.Module.Dir}
		}
		if found[m.path] == nil {
			found[m.path] = &m
		}
		found[m.path].packages = append(found[m.path].packages, pkg.Dir)
	}
	list := []module{}
	for _, path := range slices.Sorted(maps.Keys(found)) {
		list = append(list, *found[path])
	}
	return list, nil
}

// notice is a license text of a module.
type notice struct{ name, path string }

// moduleNotices holds the notices of each module, by its path.
type moduleNotices map[string][]notice

// licenseFile matches the names of licenses and of files that licenses require to be distributed.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]es?|copying|copyright|notice|patents)([-.][a-z0-9.-]*)?$`)

// codeFile matches the names of source files, such as license.go, which are not license texts.
var codeFile = regexp.MustCompile(`(?i)\.(go|s|c|h|py|sh|json|ya?ml)$`)

// collectNotices collects the notices of modules: those in the folder of each included package, and
// in the folders above it up to the module's. A module without a notice is an error.
func collectNotices(list []module) (moduleNotices, error) {
	out := moduleNotices{}
	var errs []error
	for _, current := range list {
		folders := map[string]bool{current.dir: true}
		for _, p := range current.packages {
			for d := p; len(d) > len(current.dir) && strings.HasPrefix(d, current.dir); d = filepath.Dir(d) {
				folders[d] = true
			}
		}
		for _, d := range slices.Sorted(maps.Keys(folders)) {
			files, err := os.ReadDir(d)
			if err != nil {
				return nil, err
			}
			for _, f := range files {
				if f.Type().IsRegular() && licenseFile.MatchString(f.Name()) && !codeFile.MatchString(f.Name()) {
					path := filepath.Join(d, f.Name())
					name, err := filepath.Rel(current.dir, path)
					if err != nil {
						return nil, err
					}
					out[current.path] = append(out[current.path], notice{filepath.ToSlash(name), path})
				}
			}
		}
		if len(out[current.path]) == 0 {
			errs = append(errs, fmt.Errorf("%s has no license in %s", current.path, current.dir))
		}
	}
	return out, errors.Join(errs...)
}

// entries returns the notices as files of an archive.
func (n moduleNotices) entries() (out []entry) {
	for module, list := range n {
		for _, l := range list {
			out = append(out, entry{name: "licenses/" + module + "/" + l.name, path: l.path})
		}
	}
	return out
}

// licensePhrases returns phrases that identify licenses. The first match counts.
func licensePhrases() []struct{ id, words string } {
	return []struct{ id, words string }{
		{"Apache-2.0", "apache license version 2.0"},
		{"MPL-2.0", "mozilla public license version 2.0"},
		{"ISC", "permission to use, copy, modify, and/or distribute this software for any purpose"},
		{"ISC", "permission to use, copy, modify, and distribute this software for any purpose"},
		{"BSD-3-Clause", "may be used to endorse or promote products"},
		{"BSD-2-Clause", "redistributions in binary form must reproduce the above copyright notice"},
		{"MIT", "permission is hereby granted, free of charge"},
		{"Unlicense", "this is free and unencumbered software released into the public domain"},
	}
}

const noAssertion = "NOASSERTION"

// declaredLicense returns the SPDX name of a module's license, according to its first license text.
func (n moduleNotices) declaredLicense(module string) (string, error) {
	for _, l := range n[module] {
		if lower := strings.ToLower(l.name); strings.Contains(l.name, "/") ||
			!strings.HasPrefix(lower, "licen") && !strings.HasPrefix(lower, "copying") {
			continue
		}
		data, err := os.ReadFile(l.path)
		if err != nil {
			return "", err
		}
		words := strings.ReplaceAll(strings.ToLower(strings.Join(strings.Fields(string(data)), " ")),
			"license, version", "license version")
		for _, p := range licensePhrases() {
			if strings.Contains(words, p.words) {
				return p.id, nil
			}
		}
	}
	return noAssertion, nil
}
