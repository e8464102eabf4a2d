package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// conformanceLabel is the label of conformance specs.
const conformanceLabel = "Conformance"

// state is the result of a spec in the report of Ginkgo.
type state string

const (
	passed  state = "passed"
	failed  state = "failed" // stands for all states of a failed spec
	skipped state = "skipped"
)

// result is the result of a spec.
type result struct {
	state   state
	message string // why it failed, or why it skipped itself
	took    time.Duration
	// selected is false for a spec that a pattern excluded.
	selected bool
}

// runSpecs runs the conformance specs that focus selects, except those that match a pattern of
// skip, and returns the results of all conformance specs by name.
func runSpecs(ctx context.Context, c *cluster, o options, skip []string) (map[string]result, error) {
	const report = "report.json"
	log, err := os.Create(filepath.Join(c.dir, "e2e.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	args := []string{"--no-color", "--silence-skips", "--label-filter=" + conformanceLabel,
		fmt.Sprintf("--procs=%d", o.procs), "--timeout=" + o.timeout.String(),
		"--output-dir=" + c.dir, "--json-report=" + report}
	if o.focus != "" {
		args = append(args, "--focus="+o.focus)
	}
	for _, pattern := range skip {
		args = append(args, "--skip="+pattern)
	}
	args = append(args, c.tool("e2e.test"), "--", "--kubeconfig="+c.kubeconfig(), "--kubectl-path="+c.tool("kubectl"),
		"--provider=skeleton",
		"--e2e-output-dir="+c.dir, "--dump-logs-on-failure=false", "--disable-log-dump")
	cmd := exec.CommandContext(ctx, c.tool("ginkgo"), args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "HOME="+c.dir) // kubectl caches discovery there
	progress := &progress{every: progressInterval, began: time.Now(), out: os.Stdout}
	cmd.Stdout, cmd.Stderr = io.MultiWriter(log, progress), log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = stopTimeout
	fmt.Println("run specs, log:", log.Name())
	exit := (*exec.ExitError)(nil)
	if err := cmd.Run(); err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		return nil, fmt.Errorf("run e2e.test: %w", err)
	}
	return readReport(filepath.Join(c.dir, report))
}

// readReport returns the conformance specs of a report of Ginkgo by name.
func readReport(path string) (map[string]result, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeType            string
			LeafNodeText            string
			State                   state
			RunTime                 time.Duration
			Failure                 struct{ Message string }
		}
	}
	if err := json.NewDecoder(bufio.NewReader(f)).Decode(&suites); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	out := map[string]result{}
	for _, suite := range suites {
		for _, s := range suite.SpecReports {
			name := strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " ")
			switch {
			case s.LeafNodeType != "It":
				if s.State != passed && s.State != skipped {
					return nil, fmt.Errorf("%s of e2e.test: %s", s.LeafNodeType, s.Failure.Message)
				}
			case strings.Contains(name, "["+conformanceLabel+"]"):
				message, _, _ := strings.Cut(strings.TrimSpace(s.Failure.Message), "\n")
				out[name] = result{
					state:    s.State,
					message:  message,
					took:     s.RunTime,
					selected: s.State != skipped || message != "",
				}
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s contains no conformance spec", path)
	}
	return out, nil
}

// progressInterval is the interval at which progress prints.
const progressInterval = time.Minute

// progress prints how many specs have ended, by counting the marks of Ginkgo's output.
type progress struct {
	every       time.Duration
	began, last time.Time
	out         *os.File
	ended       int
}

func (p *progress) Write(text []byte) (int, error) {
	p.ended += bytes.Count(text, []byte("•"))
	if now := time.Now(); now.Sub(p.last) >= p.every {
		p.last = now
		fmt.Fprintf(p.out, "  %d specs have ended, %v\n", p.ended, now.Sub(p.began).Round(time.Second))
	}
	return len(text), nil
}
