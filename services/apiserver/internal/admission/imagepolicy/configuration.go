package imagepolicy

import (
	"errors"
	"fmt"
	"time"

	"binnacle/services/apiserver/internal/admission/configuration"
)

// Configuration of the plugin.
type Configuration struct {
	// KubeconfigFile says where the service is.
	KubeconfigFile string
	// AllowTTL and DenyTTL are how long answers are kept; 0 keeps none.
	AllowTTL, DenyTTL time.Duration
	// RetryBackoff is the pause after a first failure; 0 does not ask again.
	RetryBackoff time.Duration
	// DefaultAllow lets pods pass while the service cannot be asked.
	DefaultAllow bool
}

// file is how the configuration is written: times in seconds, the backoff in
// milliseconds; 0 stands for the default, -1 for none.
type file struct {
	ImagePolicy struct {
		KubeConfigFile string `json:"kubeConfigFile"`
		AllowTTL       int64  `json:"allowTTL"`
		DenyTTL        int64  `json:"denyTTL"`
		RetryBackoff   int64  `json:"retryBackoff"`
		DefaultAllow   bool   `json:"defaultAllow"`
	} `json:"imagePolicy"`
}

// Load reads a configuration, which has to be there.
func Load(data []byte) (*Configuration, error) {
	if data == nil {
		return nil, errors.New("no config specified")
	}
	var f file
	if err := configuration.DecodeBare(data, &f); err != nil {
		return nil, err
	}
	in := &f.ImagePolicy
	c := &Configuration{KubeconfigFile: in.KubeConfigFile, DefaultAllow: in.DefaultAllow}
	for _, d := range []struct {
		to                     *time.Duration
		value                  int64
		unit, least, most, def time.Duration
	}{
		{&c.RetryBackoff, in.RetryBackoff, time.Millisecond, 1, 5 * time.Minute, 500 * time.Millisecond},
		{&c.AllowTTL, in.AllowTTL, time.Second, time.Second, 30 * time.Minute, 5 * time.Minute},
		{&c.DenyTTL, in.DenyTTL, time.Second, time.Second, 30 * time.Minute, 30 * time.Second},
	} {
		switch d.value {
		case -1:
		case 0:
			*d.to = d.def
		default:
			// A value so large that its product is another one is too large.
			v := time.Duration(d.value) * d.unit
			if v/d.unit != time.Duration(d.value) || v < d.least || v > d.most {
				return nil, fmt.Errorf("valid value is between %v and %v, got %v", d.least, d.most, v)
			}
			*d.to = v
		}
	}
	if c.KubeconfigFile == "" {
		return nil, errors.New("imagePolicy.kubeConfigFile: Required value")
	}
	return c, nil
}
