package app

import (
	"errors"
	"strings"
	"testing"
	"time"

	"binnacle/libs/options"
)

// TestValidateRejectsInvalidTargetsAndIntervals checks the errors for invalid flags.
func TestValidateRejectsInvalidTargetsAndIntervals(t *testing.T) {
	valid := []string{"apiserver=https://127.0.0.1:6443"}
	for name, test := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"valid target": {change: func(opts *Options) { opts.Targets = valid }, want: ""},
		"no targets":   {change: func(*Options) {}, want: "--target is required"},
		"target without an address": {change: func(opts *Options) { opts.Targets = []string{"apiserver"} },
			want: `--target: "apiserver" is not SERVICE=https://HOST:PORT`},
		"interval below the minimum": {
			change: func(opts *Options) { opts.Targets, opts.Interval = valid, time.Millisecond },
			want:   "--interval must be",
		},
		"idle interval below the interval": {change: func(opts *Options) { opts.Targets, opts.IdleInterval = valid, time.Second }, want: "--idle-interval"},
		"invalid port":                     {change: func(opts *Options) { opts.Targets, opts.Serving.SecurePort = valid, -1 }, want: "--secure-port"},
	} {
		opts := NewOptions()
		opts.AddFlags(&options.Sections{})
		opts.Serving.CertDir = t.TempDir()
		test.change(opts)
		err := opts.Complete()
		if err == nil {
			err = errors.Join(opts.Validate()...)
		}
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}
