package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"
)

// The environment of a test with mutants.
const (
	activeEnv  = "MUTATE_ON"      // number of the active mutant
	reachedEnv = "MUTATE_REACHED" // file for the numbers of the reached mutants
)

// switchSource is the file that is added to a mutated package; PACKAGE is its name.
const switchSource = `package PACKAGE

import (
	"os"
	"strconv"
	"sync"
)

var mutateOn = os.Getenv("` + activeEnv + `")

var mutateReached = os.Getenv("` + reachedEnv + `")

var mutateSeen sync.Map

func mutateIf[B ~bool](id int, is, becomes B) B {
	if mutateReached != "" {
		if _, seen := mutateSeen.LoadOrStore(id, true); !seen {
			if f, err := os.OpenFile(mutateReached, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
				_, _ = f.WriteString(strconv.Itoa(id) + "\n")
				_ = f.Close()
			}
		}
	}
	if mutateOn != "" && mutateOn == strconv.Itoa(id) {
		return becomes
	}
	return is
}
`

// writeOverlay writes the sources with all mutants and the overlay file for the compiler, and
// returns its path.
func writeOverlay(temp, dir string, sources map[string][]byte, found []mutation) (string, error) {
	replace := map[string]string{}
	overlay := func(path, content string) error {
		path, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		other := filepath.Join(temp, fmt.Sprintf("source%d.go", len(replace)))
		replace[path] = other
		return os.WriteFile(other, []byte(content), 0o600)
	}
	name := ""
	for path, source := range sources {
		file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.PackageClauseOnly)
		if err != nil {
			return "", err
		}
		name = file.Name.Name
		if err := overlay(path, insertMutants(path, source, found)); err != nil {
			return "", err
		}
	}
	if err := overlay(filepath.Join(dir, "zz_mutate.go"), strings.ReplaceAll(switchSource, "PACKAGE", name)); err != nil {
		return "", err
	}
	raw, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(temp, "overlay.json")
	return file, os.WriteFile(file, raw, 0o600)
}

// insertMutants returns a source in which each condition can be switched. Mutations can be nested,
// so each adds text before and after. Of two mutations that begin at the same place, the longer one
// is outside.
func insertMutants(path string, source []byte, found []mutation) string {
	type insertion struct {
		at, order int
		text      string
	}
	var all []insertion
	for id, m := range found {
		if m.file != path {
			continue
		}
		size := m.end - m.begin
		// The first of two mutations of the same condition is inside.
		all = append(all,
			insertion{m.begin, (1<<30 - size*1000) - id%1000, fmt.Sprintf("mutateIf(%d, ", id)},
			insertion{m.end, -(1 << 30) + size*1000 + id%1000, fmt.Sprintf(", %s)", m.replacement)})
	}
	sort.Slice(all, func(i, j int) bool {
		if all[i].at != all[j].at {
			return all[i].at < all[j].at
		}
		return all[i].order < all[j].order
	})
	var out bytes.Buffer
	last := 0
	for _, in := range all {
		out.Write(source[last:in.at])
		out.WriteString(in.text)
		last = in.at
	}
	out.Write(source[last:])
	return out.String()
}

// test is a test of a built package.
type test struct {
	binary, dir, name string
	reaches           map[int]bool  // numbers of the mutants that it reaches
	duration          time.Duration // without an active mutant
}

// buildTests builds the tests of a package into a file and lists them.
func buildTests(binary, pkg, overlay string, named *regexp.Regexp) ([]*test, error) {
	if out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay="+overlay, "-o", binary,
		pkg).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	if _, err := os.Stat(binary); err != nil {
		return nil, nil // no tests
	}
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", pkg).Output()
	if err != nil {
		return nil, err
	}
	out, err := exec.Command(binary, "-test.list=^(Test|Fuzz|Example)").Output()
	if err != nil {
		return nil, err
	}
	var all []*test
	for _, name := range strings.Fields(string(out)) {
		if named.MatchString(name) {
			all = append(all, &test{binary: binary, dir: strings.TrimSpace(string(dir)), name: name})
		}
	}
	return all, nil
}

// runWithoutMutant runs a test without an active mutant and records the mutants that it reaches.
func (t *test) runWithoutMutant(reached string) error {
	if err := os.WriteFile(reached, nil, 0o600); err != nil {
		return err
	}
	start := time.Now()
	out, err := t.command(10*time.Minute, reachedEnv+"="+reached).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s without a mutant: %w: %s", t.name, err, out)
	}
	t.duration, t.reaches = time.Since(start), map[int]bool{}
	raw, err := os.ReadFile(reached)
	if err != nil {
		return err
	}
	for _, line := range strings.Fields(string(raw)) {
		id, err := strconv.Atoi(line)
		if err != nil {
			return err
		}
		t.reaches[id] = true
	}
	return nil
}

// detects reports whether the test detects a mutant. A test that hangs detects it, too.
func (t *test) detects(id int) bool {
	return t.command(20*time.Second+5*t.duration, activeEnv+"="+strconv.Itoa(id)).Run() != nil
}

// command returns the command that runs the test with an environment variable.
func (t *test) command(limit time.Duration, env string) *exec.Cmd {
	c := exec.Command(t.binary, "-test.run=^"+t.name+"$", "-test.failfast", "-test.timeout="+limit.String())
	c.Dir, c.Env = t.dir, append(os.Environ(), env)
	return c
}
