// Package healthcheck implements the command healthcheck of every service. The command requests a
// health endpoint of a server on the same machine, for health checks of containers whose image has no
// other program.
package healthcheck

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"binnacle/libs/options"
	"binnacle/libs/serving/tlsfiles"
)

// Name is the name of the command.
const Name = "healthcheck"

// maxResponse bounds the response body in bytes, because the error of a failed check quotes all of
// it.
const maxResponse = 16 << 10

// Command returns the command. It ends with exit code 0 if the URL returns 200.
func Command() options.Command {
	o := &checkOptions{Timeout: 5 * time.Second}
	return options.Command{
		Name:    Name,
		Short:   "Request a health endpoint; exit code 0 if it returns 200. For health checks of containers.",
		Options: o,
		Run:     o.Run,
	}
}

// checkOptions holds the flags of the health check.
type checkOptions struct {
	URL                       string
	CAFile, CertFile, KeyFile string
	Timeout                   time.Duration
}

// AddFlags implements options.Options.
func (o *checkOptions) AddFlags(s *options.Sections) {
	flags := s.Set("health check")
	flags.StringVar(&o.URL, "url", "", "URL of the health endpoint, such as https://127.0.0.1:6443/livez.")
	flags.StringVar(&o.CAFile, "cacert", "", "CA bundle that verifies the server.")
	flags.StringVar(&o.CertFile, "cert", "", "Client certificate; without it the request is anonymous.")
	flags.StringVar(&o.KeyFile, "key", "", "Key of the client certificate.")
	flags.DurationVar(&o.Timeout, "timeout", o.Timeout, "Maximum time of the request.")
}

// Complete implements options.Options.
func (o *checkOptions) Complete() error { return nil }

// Validate implements options.Options.
func (o *checkOptions) Validate() (errs []error) {
	if u, err := url.Parse(o.URL); err != nil || u.Scheme != "https" || u.Host == "" {
		errs = append(errs, fmt.Errorf("--url must be an https URL, got %q", o.URL))
	}
	if o.CAFile == "" {
		errs = append(errs, errors.New("--cacert is required"))
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		errs = append(errs, errors.New("--cert and --key must be given together"))
	}
	if o.Timeout <= 0 {
		errs = append(errs, errors.New("--timeout must be positive"))
	}
	return errs
}

// Run sends the request. It returns an error unless the response is 200.
func (o *checkOptions) Run(ctx context.Context, _ *slog.Logger) error {
	bundle, err := tlsfiles.LoadBundle(o.CAFile)
	if err != nil {
		return fmt.Errorf("--cacert: %w", err)
	}
	config := &tls.Config{RootCAs: bundle.Pool()}
	if o.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return fmt.Errorf("--cert and --key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, o.URL, nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(body)))
	}
	return err
}
