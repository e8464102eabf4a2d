package app

import (
	"errors"
	"strings"
	"testing"
	"time"

	"binnacle/libs/options"
)

func TestOptionsValidateTargetsAndIntervals(t *testing.T) {
	good := []string{"apiserver=https://127.0.0.1:6443"}
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"a target":         {func(o *Options) { o.Targets = good }, ""},
		"none":             {func(*Options) {}, "--target must be given"},
		"no target":        {func(o *Options) { o.Targets = []string{"apiserver"} }, `--target: "apiserver" is not SERVICE=https://HOST:PORT`},
		"too often":        {func(o *Options) { o.Targets, o.Interval = good, time.Millisecond }, "--interval must be"},
		"idle more often":  {func(o *Options) { o.Targets, o.IdleInterval = good, time.Second }, "--idle-interval"},
		"a port of no use": {func(o *Options) { o.Targets, o.Serving.SecurePort = good, -1 }, "--secure-port"},
	} {
		o := NewOptions()
		o.AddFlags(&options.Sections{})
		o.Serving.CertDir = t.TempDir()
		c.change(o)
		err := o.Complete()
		if err == nil {
			err = errors.Join(o.Validate()...)
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
