package imagepolicy

import (
	"errors"
	"fmt"
	"time"

	"binnacle/services/apiserver/internal/admission/configuration"
)

// Configuration is the configuration of the plugin.
type Configuration struct {
	// KubeconfigFile is the path of the kubeconfig for the service.
	KubeconfigFile string
	// AllowTTL and DenyTTL are how long responses are cached; 0 disables caching.
	AllowTTL, DenyTTL time.Duration
	// RetryBackoff is the pause after the first failure; 0 disables retries.
	RetryBackoff time.Duration
	// DefaultAllow admits pods while the service is unreachable.
	DefaultAllow bool
}

// file is the configuration as it is written. TTLs are in seconds, the backoff is in
// milliseconds. 0 means the default, and -1 disables caching or retries.
type file struct {
	ImagePolicy struct {
		KubeConfigFile string `json:"kubeConfigFile"`
		AllowTTL       int64  `json:"allowTTL"`
		DenyTTL        int64  `json:"denyTTL"`
		RetryBackoff   int64  `json:"retryBackoff"`
		DefaultAllow   bool   `json:"defaultAllow"`
	} `json:"imagePolicy"`
}

// Load decodes a configuration. A missing configuration is an error.
func Load(data []byte) (*Configuration, error) {
	if data == nil {
		return nil, errors.New("no config specified")
	}
	var f file
	if err := configuration.DecodeBare(data, &f); err != nil {
		return nil, err
	}
	in := &f.ImagePolicy
	config := &Configuration{KubeconfigFile: in.KubeConfigFile, DefaultAllow: in.DefaultAllow}
	for _, setting := range []struct {
		to    *time.Duration
		value int64
		unit  time.Duration // of value

		minimum, maximum, defaultValue time.Duration
	}{
		{
			to:           &config.RetryBackoff,
			value:        in.RetryBackoff,
			unit:         time.Millisecond,
			minimum:      1,
			maximum:      5 * time.Minute,
			defaultValue: 500 * time.Millisecond,
		},
		{
			to:           &config.AllowTTL,
			value:        in.AllowTTL,
			unit:         time.Second,
			minimum:      time.Second,
			maximum:      30 * time.Minute,
			defaultValue: 5 * time.Minute,
		},
		{
			to:           &config.DenyTTL,
			value:        in.DenyTTL,
			unit:         time.Second,
			minimum:      time.Second,
			maximum:      30 * time.Minute,
			defaultValue: 30 * time.Second,
		},
	} {
		switch setting.value {
		case -1: // disabled
		case 0:
			*setting.to = setting.defaultValue
		default:
			duration := time.Duration(setting.value) * setting.unit
			// The first condition detects an overflow of the product.
			if duration/setting.unit != time.Duration(setting.value) || duration < setting.minimum || duration > setting.maximum {
				return nil, fmt.Errorf("valid value is between %v and %v, got %v", setting.minimum, setting.maximum, duration)
			}
			*setting.to = duration
		}
	}
	if config.KubeconfigFile == "" {
		return nil, errors.New("imagePolicy.kubeConfigFile: Required value")
	}
	return config, nil
}
