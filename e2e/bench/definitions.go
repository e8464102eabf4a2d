package main

import (
	"fmt"
	"net/http"
	"time"
)

// How many definitions are made, and with how many the server starts again.
const (
	fewDefinitions  = 200
	manyDefinitions = 5000
)

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// definitions measures what definitions of 60 fields cost, one by one, and how a server
// starts that has many of them.
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
	before, begin := l.measure(), time.Now()
	rest := manyDefinitions - fewDefinitions
	lat, errs := parallel(rest, 4, func(i int) error { return l.defined(c, fewDefinitions+i) })
	l.report("the rest, each asked for at once", before, rest, time.Since(begin).Seconds(), lat, map[string]any{"errors": errs}) // not served: an error
	api.stop()
	again, err := b.apiserver("definitions", args...)
	if err != nil {
		return err
	}
	api = again
	l = b.load(like, "apiserver", api.url, api, "admin")
	fmt.Printf("with %d definitions: ready after %d ms\n", manyDefinitions, api.ready.Milliseconds())
	l.run(c, "idle") // CPU since the start is in here
	fmt.Printf("CPU until ready: %.2f s\n", l.measure().cpu["apiserver"])
	c = l.newClient()
	code, out, err := l.do(c, http.MethodGet, fmt.Sprintf("/apis/g%d.bench.example/v1/widget%ds", (manyDefinitions-1)%20, manyDefinitions-1), "", nil, "application/json")
	if err != nil || code != http.StatusOK {
		return fmt.Errorf("the last one is not served: %d %.300s %w", code, out, err)
	}
	time.Sleep(10 * time.Second) // memory settles
	l.run(c, "idle")
	return nil
}

// defined makes a definition, whose resource is then served.
func (l *load) defined(c *http.Client, i int) error {
	if err := l.made(c, definitionsPath, string(crd(i))); err != nil {
		return err
	}
	code, out, err := l.do(c, http.MethodGet, fmt.Sprintf("/apis/g%d.bench.example/v1/widget%ds", i%20, i), "", nil, "application/json")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("definition %d is not served: %d %.300s", i, code, out)
	}
	return err
}
