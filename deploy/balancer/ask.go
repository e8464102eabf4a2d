package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"binnacle/deploy/internal/balancer"
	"binnacle/libs/serving/tlsfiles"
)

const (
	probeTimeout = 2 * time.Second // of one request
	maxResponse  = 64 << 10        // bytes of a response that are read
)

// errNotReady means that some instances are not ready. runCheck has printed them.
var errNotReady = errors.New("not all are ready")

// prober checks the readiness of instances.
type prober struct{ client *http.Client }

func newProber(ca string) (*prober, error) {
	bundle, err := tlsfiles.LoadBundle(ca)
	if err != nil {
		return nil, fmt.Errorf("--ca-file: %w", err)
	}
	return &prober{&http.Client{
		Timeout:   probeTimeout,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: bundle.Pool()}},
	}}, nil
}

// stateOf returns the state of an instance, given as host:port: Silent if it does not respond,
// Ready if /readyz responds with 200, and Busy otherwise.
func (p *prober) stateOf(ctx context.Context, instance string) balancer.State {
	code, _, err := p.getReadyz(ctx, instance)
	switch {
	case err != nil:
		return balancer.Silent
	case code == http.StatusOK:
		return balancer.Ready
	}
	return balancer.Busy
}

// getReadyz requests /readyz of an instance.
func (p *prober) getReadyz(ctx context.Context, instance string) (code int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+instance+"/readyz", nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	return resp.StatusCode, string(data), err
}

// runCheck checks once and prints the instances that are not ready, with the reasons.
func runCheck(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("balancer check", pflag.ContinueOnError)
	ca := flags.String("ca-file", "", "CA bundle that verifies the instances")
	if err := flags.Parse(args); err != nil {
		return ignoreHelp(err)
	}
	checker, err := newProber(*ca)
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	problems := make([]string, flags.NArg())
	for i, instance := range flags.Args() {
		group.Go(func() {
			if err := checker.checkReady(ctx, instance); err != nil {
				problems[i] = instance + ": " + err.Error()
			}
		})
	}
	group.Wait()
	problems = slices.DeleteFunc(problems, func(s string) bool { return s == "" })
	if len(problems) == 0 {
		return nil
	}
	for _, line := range problems {
		fmt.Fprintln(os.Stdout, line)
	}
	return errNotReady
}

// checkReady returns an error with the failing checks if an instance is not ready.
func (p *prober) checkReady(ctx context.Context, instance string) error {
	code, body, err := p.getReadyz(ctx, instance)
	if err != nil || code == http.StatusOK {
		return err
	}
	var failing []string
	for line := range strings.Lines(body) {
		if name, ok := strings.CutPrefix(line, "[-]"); ok {
			name, _, _ = strings.Cut(name, " ")
			failing = append(failing, name)
		}
	}
	return fmt.Errorf("%d, failing checks: %s", code, strings.Join(failing, ", "))
}
