// Command operators sends the definitions and the sample objects of operator projects to
// kube-apiserver and to binnacle and prints the differences between their responses. The projects
// come from the module proxy. A difference that no entry of the file of accepted differences matches
// is a failure. With the flag -suites, the command runs the projects' own tests instead.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"

	"binnacle/e2e/conformance/comparison"
)

// options are the flags of the command.
type options struct {
	comparison.Options
	projects, only  string
	samples, faults int
	seed            uint64
	suites          string
}

func main() {
	var o options
	o.Register("operators/accepted.txt")
	flag.StringVar(&o.projects, "projects", "operators/projects.yaml", "file with the projects")
	flag.StringVar(&o.only, "only", "", "regular expression for the names of projects; empty selects all")
	flag.IntVar(&o.samples, "samples", 5, "number of samples of a version of a resource; 0 selects all")
	flag.IntVar(&o.faults, "faults", 6, "number of requests with faults for each sample")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the faults")
	flag.StringVar(&o.suites, "suites", "", "only run the envtest suites of the projects, on the binaries in this folder")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if o.suites != "" {
		err = runSuites(ctx, o)
	} else {
		err = o.Run(ctx, func(p *comparison.Runner) error { return runProjects(ctx, p, o) })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// selected returns the projects that the flags select.
func (o options) selected() ([]project, error) {
	match, err := regexp.Compile(o.only)
	if err != nil {
		return nil, err
	}
	projects, err := readProjects(o.projects)
	return slices.DeleteFunc(projects, func(p project) bool { return !match.MatchString(p.Name) }), err
}

// runProjects runs the projects one after the other and prints a table.
func runProjects(ctx context.Context, p *comparison.Runner, o options) error {
	projects, err := o.selected()
	if err != nil {
		return err
	}
	p.Cleanup = func(c *comparison.Scenario) []comparison.Step {
		if c.Namespace == "" {
			return nil
		}
		return []comparison.Step{{Method: "DELETE", Path: "/api/v1/namespaces/{ns}"}}
	}
	row := func(columns ...any) { fmt.Printf("%-24s %11v %8v %9v %9v %11v\n", columns...) }
	row("project", "definitions", "samples", "generated", "requests", "differences")
	for _, one := range projects {
		content, err := one.load(ctx, o.samples)
		if err != nil {
			return fmt.Errorf("%s: %w", one.Name, err)
		}
		sent, differences := p.Sent(), p.Found.Unaccepted()
		content.run(ctx, p, o)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		given, generated := content.count()
		row(one.Name, len(content.definitions), given, generated, p.Sent()-sent, p.Found.Unaccepted()-differences)
	}
	return nil
}
