package app

import (
	"errors"
	"strings"
	"testing"
	"time"

	"binnacle/libs/options"
)

// TestOptionsValidateTargetsAndIntervals checks the errors for invalid flags.
func TestOptionsValidateTargetsAndIntervals(t *testing.T) {
	good := []string{"apiserver=https://127.0.0.1:6443"}
	for name, test := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"a target": {change: func(o *Options) { o.Targets = good }, want: ""},
		"none":     {change: func(*Options) {}, want: "--target is required"},
		"no target": {change: func(o *Options) { o.Targets = []string{"apiserver"} },
			want: `--target: "apiserver" is not SERVICE=https://HOST:PORT`},
		"too often": {
			change: func(o *Options) { o.Targets, o.Interval = good, time.Millisecond },
			want:   "--interval must be",
		},
		"idle more often":  {change: func(o *Options) { o.Targets, o.IdleInterval = good, time.Second }, want: "--idle-interval"},
		"a port of no use": {change: func(o *Options) { o.Targets, o.Serving.SecurePort = good, -1 }, want: "--secure-port"},
	} {
		o := NewOptions()
		o.AddFlags(&options.Sections{})
		o.Serving.CertDir = t.TempDir()
		test.change(o)
		err := o.Complete()
		if err == nil {
			err = errors.Join(o.Validate()...)
		}
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}
