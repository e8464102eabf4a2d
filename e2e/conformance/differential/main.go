// Command differential sends the same random requests to kube-apiserver and to binnacle and prints
// the differences between their responses, grouped by their likely cause. Requests depend on the
// seed only. A difference that no entry of the file of accepted differences matches is a failure.
package main

import (
	"context"
	"flag"
	"fmt"
	"iter"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"
	"time"

	"binnacle/e2e/conformance/comparison"
)

// options are the flags of the command.
type options struct {
	comparison.Options
	requests     int
	seed         uint64
	kinds, cases string
	only         string
}

func main() {
	var o options
	o.Register("differential/accepted.txt")
	flag.IntVar(&o.requests, "requests", 10000, "number of requests to each server")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the requests")
	flag.StringVar(&o.kinds, "kinds", "../../services/apiserver/internal/api/kinds/builtin/testdata/kinds", "folder with valid objects of the kinds")
	flag.StringVar(&o.cases, "cases", "../golden/cases", "folder with golden scenarios")
	flag.StringVar(&o.only, "only", "", "regular expression for the names of scenarios, such as ^pods; empty selects all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := o.Run(ctx, func(p *comparison.Runner) error {
		p.Cleanup = cleanup
		p.Reviews = comparison.NewReviews()
		defer p.Reviews.Close()
		g, err := newGenerator(o, p.Reference, p.Product)
		if err != nil {
			return err
		}
		p.RunAll(ctx, o.Workers, scenarios(g, p.Found, o))
		return nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func newGenerator(o options, reference, product *comparison.Server) (*generator, error) {
	first, second := &comparison.Session{Server: reference, Vars: map[string]string{}}, &comparison.Session{Server: product, Vars: map[string]string{}}
	err := createCustom(first, second)
	if err != nil {
		return nil, err
	}
	g := &generator{seed: o.seed}
	if g.kinds, err = loadKinds(reference); err != nil {
		return nil, err
	}
	if err := addCustomBases(g.kinds); err != nil {
		return nil, err
	}
	if err := readBases(g.kinds, o.kinds, o.cases); err != nil {
		return nil, err
	}
	omitAggregation(g.kinds)
	if g.golden, err = loadGolden(o.cases); err != nil {
		return nil, err
	}
	// Each server takes its own time until a change of admission takes effect.
	g.golden = slices.DeleteFunc(g.golden, goldenCase.configuresAdmission)
	g.golden = slices.DeleteFunc(g.golden, goldenCase.sleeps)
	return g, nil
}

// scenarios returns scenarios with the wanted number of requests.
func scenarios(g *generator, found *comparison.Groups, o options) iter.Seq[*comparison.Scenario] {
	return func(yield func(*comparison.Scenario) bool) {
		match, sent, printed := regexp.MustCompile(o.only), 0, time.Now()
		for n := 0; sent < o.requests; n++ {
			c := g.scenario(n)
			if !match.MatchString(c.Name) {
				continue
			}
			if !yield(c) {
				return
			}
			sent += len(c.Steps)
			if time.Since(printed) > 10*time.Second {
				printed = time.Now()
				fmt.Printf("%d of %d requests, %d groups of differences\n", sent, o.requests, found.Len())
			}
		}
	}
}
