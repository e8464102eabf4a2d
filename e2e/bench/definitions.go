package main

import (
	"fmt"
	"net/http"
	"time"
)

// The number of measured definitions, and the number with which the server restarts.
const (
	fewDefinitions  = 200
	manyDefinitions = 5000
)

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// definitions measures the cost of definitions with 60 fields, one by one, and the start of a
// server with many of them.
func definitions(like *load, bin string) error {
	b, err := newBench(bin)
	if err != nil {
		return err
	}
	defer b.close()
	args := []string{"--authorization-mode=AlwaysAllow", "--disable-admission-plugins=ServiceAccount"}
	api, err := b.apiserver("definitions", args...)
	if err != nil {
		return err
	}
	defer func() { api.stop() }()
	l := b.load(like, "apiserver", api.url, api, "admin")
	c := l.newClient()
	l.run(c, "idle")
	few := *l
	few.n, few.conc = fewDefinitions, 4
	few.crds(c)
	few.run(c, "idle")
	before, start := l.measure(), time.Now()
	rest := manyDefinitions - fewDefinitions
	lat, errs := parallel(rest, 4, func(i int) error { return l.defined(c, fewDefinitions+i) })
	l.report("the rest, each used at once", before, rest, time.Since(start).Seconds(), lat, map[string]any{"errors": errs}) // an error if not served
	api.stop()
	again, err := b.apiserver("definitions", args...)
	if err != nil {
		return err
	}
	api = again
	l = b.load(like, "apiserver", api.url, api, "admin")
	fmt.Printf("with %d definitions: ready after %d ms\n", manyDefinitions, api.ready.Milliseconds())
	l.run(c, "idle") // includes the CPU time since the start
	fmt.Printf("CPU until ready: %.2f s\n", l.measure().cpu["apiserver"])
	c = l.newClient()
	code, out, err := l.request(c, http.MethodGet, fmt.Sprintf("/apis/g%d.bench.example/v1/widget%ds", (manyDefinitions-1)%20, manyDefinitions-1), "", nil, "application/json")
	if err != nil || code != http.StatusOK {
		return fmt.Errorf("the last definition is not served: %d %.300s %w", code, out, err)
	}
	time.Sleep(10 * time.Second) // memory settles
	l.run(c, "idle")
	return nil
}

// defined creates a definition and uses its resource.
func (l *load) defined(c *http.Client, i int) error {
	if err := l.create(c, definitionsPath, string(crd(i))); err != nil {
		return err
	}
	code, out, err := l.request(c, http.MethodGet, fmt.Sprintf("/apis/g%d.bench.example/v1/widget%ds", i%20, i), "", nil, "application/json")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("definition %d is not served: %d %.300s", i, code, out)
	}
	return err
}
