package encryption

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"binnacle/libs/filewatch"
)

// Type of the configuration file.
const (
	configGroup = "apiserver.config.k8s.io"
	configKind  = "EncryptionConfiguration"
	// oldKind is the kind, in the core group, that early documentation used for the file.
	oldKind = "EncryptionConfig"
)

// Configuration maps resources to the providers that encrypt them.
type Configuration struct {
	metav1.TypeMeta `json:",inline"`
	Resources       []ResourceConfiguration `json:"resources"`
}

// ResourceConfiguration is a rule: the first provider encrypts, all providers decrypt.
type ResourceConfiguration struct {
	Resources []string                `json:"resources"`
	Providers []ProviderConfiguration `json:"providers"`
}

// ProviderConfiguration is a provider. Exactly one field is set.
type ProviderConfiguration struct {
	AESGCM    *KeysConfiguration     `json:"aesgcm,omitempty"`
	AESCBC    *KeysConfiguration     `json:"aescbc,omitempty"`
	Secretbox *KeysConfiguration     `json:"secretbox,omitempty"`
	Identity  *IdentityConfiguration `json:"identity,omitempty"`
	KMS       *KMSConfiguration      `json:"kms,omitempty"`
}

// KeysConfiguration holds keys that the file contains.
type KeysConfiguration struct {
	Keys []Key `json:"keys"`
}

// Key is a named key. The secret is base64.
type Key struct {
	Name   string `json:"name"`
	Secret string `json:"secret"`
}

// IdentityConfiguration configures no encryption.
type IdentityConfiguration struct{}

// KMSConfiguration configures a plugin.
type KMSConfiguration struct {
	APIVersion string           `json:"apiVersion"`
	Name       string           `json:"name"`
	CacheSize  *int32           `json:"cachesize,omitempty"`
	Endpoint   string           `json:"endpoint"`
	Timeout    *metav1.Duration `json:"timeout,omitempty"`
}

// Read reads and validates a configuration file. reload means that the file will be followed. It
// returns the content also together with a validation error.
func Read(file string, reload bool) (*Configuration, []byte, error) {
	data, err := filewatch.Read(file)
	if err != nil {
		return nil, nil, readError(file, err)
	}
	c, err := Parse(file, data, reload)
	return c, data, err
}

// readError returns the error for a configuration file that cannot be read.
func readError(file string, err error) error {
	return parseError(fmt.Errorf("error while loading file: error reading encryption provider configuration file %q: %w", file, err))
}

// parseError returns the error for a configuration file that is invalid.
func parseError(err error) error { return fmt.Errorf("error while parsing file: %w", err) }

// Parse parses and validates the content of a configuration file.
func Parse(file string, data []byte, reload bool) (*Configuration, error) {
	if len(data) == 0 {
		return nil, parseError(fmt.Errorf("error while loading file: encryption provider configuration file %q is empty", file))
	}
	c, err := decodeStrictly(data)
	if err != nil {
		return nil, parseError(fmt.Errorf("error decoding encryption provider configuration file %q: %w", file, err))
	}
	c.setDefaults()
	if err := c.validate(reload).ToAggregate(); err != nil {
		return nil, parseError(err)
	}
	return c, nil
}

// decodeStrictly parses one document strictly.
func decodeStrictly(data []byte) (*Configuration, error) {
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		// If lenient parsing succeeds, the error is reported as a strict decoding error.
		if text, lenient := yaml.YAMLToJSON(data); lenient == nil {
			if err := checkKind(text); err != nil {
				return nil, err
			}
			return nil, fmt.Errorf("strict decoding error: %w", err)
		}
		return nil, err
	}
	if err := checkKind(text); err != nil {
		return nil, err
	}
	configuration := &Configuration{}
	strictErrors, err := json.UnmarshalStrict(text, configuration)
	if err != nil {
		return nil, err
	}
	if len(strictErrors) > 0 {
		var texts bytes.Buffer
		for i, err := range strictErrors {
			if i > 0 {
				_, _ = io.WriteString(&texts, ", ")
			}
			texts.WriteString(err.Error())
		}
		return nil, fmt.Errorf("strict decoding error: %s", texts.String())
	}
	return configuration, nil
}

// checkKind returns an error unless the document is an EncryptionConfiguration of a known version.
func checkKind(text []byte) error {
	var head metav1.TypeMeta
	if err := json.UnmarshalCaseSensitivePreserveInts(text, &head); err != nil {
		return err
	}
	gv, err := schema.ParseGroupVersion(head.APIVersion)
	switch {
	case err != nil:
		return err
	case head.Kind == "":
		return errors.New("Object 'Kind' is missing") //nolint:staticcheck // the wording is the API's
	case head.APIVersion == "":
		return errors.New("Object 'apiVersion' is missing") //nolint:staticcheck // the wording is the API's
	case head.Kind == oldKind && gv == schema.GroupVersion{Version: "v1"}:
	case head.Kind != configKind || gv.Group != configGroup || gv.Version != "v1":
		return fmt.Errorf("no kind %q is registered for version %q in scheme %q",
			head.Kind, head.APIVersion, "pkg/runtime/scheme.go:110")
	}
	return nil
}

const defaultCacheSize = 1000

// setDefaults sets the defaults of KMS providers.
func (c *Configuration) setDefaults() {
	for i := range c.Resources {
		for j := range c.Resources[i].Providers {
			kmsConfiguration := c.Resources[i].Providers[j].KMS
			if kmsConfiguration == nil {
				continue
			}
			if kmsConfiguration.APIVersion == "" {
				kmsConfiguration.APIVersion = kmsV1
			}
			if kmsConfiguration.Timeout == nil {
				kmsConfiguration.Timeout = &metav1.Duration{Duration: defaultTimeout}
			}
			if kmsConfiguration.CacheSize == nil && kmsConfiguration.APIVersion == kmsV1 {
				n := int32(defaultCacheSize)
				kmsConfiguration.CacheSize = &n
			}
		}
	}
}

// ErrWithoutFile means that automatic reload was requested without a configuration file.
var ErrWithoutFile = errors.New("--encryption-provider-config-automatic-reload must be set with --encryption-provider-config")
