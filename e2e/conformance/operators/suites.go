package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// suiteTimeout is the value of the flag -timeout of go test.
const suiteTimeout = "60m"

// result holds the numbers of tests of a package. Specs of Ginkgo count instead of the test that
// runs them.
type result struct {
	name         string
	tests, specs tally
	failed       bool
	hasSpecs     bool
}

type tally struct{ passed, failed, skipped int }

// runSuites runs the envtest suites of projects on the binaries in a folder and prints a table. It
// returns an error if one of them fails.
func runSuites(ctx context.Context, o options) error {
	projects, err := o.selected()
	if err != nil {
		return err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	logs := filepath.Join(cache, "binnacle-conformance", "logs")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return err
	}
	row := func(columns ...any) { fmt.Printf("%-24s %-50s %7v %7v %8v\n", columns...) }
	row("project", "package", "passed", "failed", "skipped")
	failures := 0
	for _, p := range projects {
		if len(p.Suites) == 0 {
			continue
		}
		log := filepath.Join(logs, "suite-"+p.Name+".log")
		results, err := p.test(ctx, o.suites, log)
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		for _, r := range results {
			counts := r.tests
			if r.hasSpecs {
				counts = r.specs
			}
			row(p.Name, r.name, counts.passed, counts.failed, counts.skipped)
			if r.failed {
				failures++
				fmt.Printf("  failed; log: %s\n", log)
			}
		}
	}
	if failures > 0 {
		return fmt.Errorf("%d packages fail", failures)
	}
	return nil
}

// test runs the suites of a project in a copy of its module and writes their output to a file.
func (p project) test(ctx context.Context, assets, log string) ([]result, error) {
	from, err := p.download(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "suite")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		return nil, err
	}
	f, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd := exec.CommandContext(ctx, "go",
		append([]string{"test", "-json", "-count=1", "-vet=off", "-p=1", "-timeout=" + suiteTimeout}, p.Suites...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KUBEBUILDER_ASSETS="+assets)
	cmd.Stderr = f
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	results, err := readResults(out, f)
	exit := (*exec.ExitError)(nil)
	if waitErr := cmd.Wait(); waitErr != nil && (!errors.As(waitErr, &exit) || len(results) == 0) {
		err = errors.Join(err, waitErr)
	}
	return results, err
}

var (
	summaries = regexp.MustCompile(`(\d+) Passed.* \| .*?(\d+) Failed.* \| .*?(\d+) Pending.* \| .*?(\d+) Skipped`)
	colors    = regexp.MustCompile("\x1b\\[[0-9;]*m")
)

// readResults reads the output of go test -json. It copies the output of the tests to a log.
func readResults(events io.Reader, log io.Writer) ([]result, error) {
	var out []result
	byPackage := map[string]int{}
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		var event struct{ Action, Package, ImportPath, Test, Output string }
		if json.Unmarshal(line, &event) != nil {
			continue
		}
		name := cmp.Or(event.Package, event.ImportPath)
		i, ok := byPackage[name]
		if !ok {
			i = len(out)
			byPackage[name] = i
			out = append(out, result{name: name})
		}
		if err := out[i].add(event.Action, event.Test, event.Output, log); err != nil {
			return out, err
		}
	}
}

func (r *result) add(action, test, output string, log io.Writer) error {
	switch action {
	case "pass":
		if test != "" {
			r.tests.passed++
		}
	case "fail", "build-fail":
		r.failed = true
		if test != "" {
			r.tests.failed++
		}
	case "skip":
		if test != "" {
			r.tests.skipped++
		}
	case "output", "build-output":
		if m := summaries.FindStringSubmatch(colors.ReplaceAllString(output, "")); m != nil {
			r.hasSpecs = true
			r.specs.passed += integer(m[1])
			r.specs.failed += integer(m[2])
			r.specs.skipped += integer(m[3]) + integer(m[4])
		}
		_, err := io.WriteString(log, output)
		return err
	}
	return nil
}

func integer(s string) int {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		return 0
	}
	return n
}
