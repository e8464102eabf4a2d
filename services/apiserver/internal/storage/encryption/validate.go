package encryption

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	kmsV1, kmsV2   = "v1", "v2"
	defaultTimeout = 3 * time.Second
)

// Error texts of Kubernetes.
const (
	textRequired      = "at least one %s is required"
	textMandatory     = "%s is a mandatory field for a %s"
	textMasked        = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked"
	textDuplicate     = "the same resource cannot be specified multiple times"
	textUppercase     = "resource name should not contain capital letters"
	textLoneStar      = "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"
	textNoAPI         = "resources which do not have REST API/s cannot be encrypted"
	textAcrossGroups  = "encrypting the same resource across groups is not supported"
	textEventsGroup   = "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file"
	textExtensions    = "'extensions' group has been removed and cannot be used for encryption"
	textNoProvider    = "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity"
	textManyProviders = "more than one provider specified in a single element, should split into different list elements"
)

// validate returns all errors of the configuration. reload means that it replaces a running one.
func (c *Configuration) validate(reload bool) (errs field.ErrorList) {
	root := field.NewPath("resources")
	if len(c.Resources) == 0 {
		return field.ErrorList{field.Required(root, fmt.Sprintf(textRequired, root))}
	}
	names := map[string]bool{}
	for i := range c.Resources {
		rule := &c.Resources[i]
		resources := root.Index(i).Child("resources")
		providers := root.Index(i).Child("providers")
		if len(rule.Resources) == 0 {
			errs = append(errs, field.Required(resources, fmt.Sprintf(textRequired, resources)))
		}
		errs = append(errs, validateOverlap(rule.Resources, resources)...)
		errs = append(errs, validateNames(rule.Resources, resources)...)
		if len(rule.Providers) == 0 {
			errs = append(errs, field.Required(providers, fmt.Sprintf(textRequired, providers)))
		}
		for j := range rule.Providers {
			errs = append(errs, rule.Providers[j].validate(providers.Index(j), names, reload)...)
		}
	}
	return errs
}

// validateOverlap rejects a list in which one entry hides another.
func validateOverlap(resources []string, path *field.Path) field.ErrorList {
	seen := map[string]bool{}
	whole := map[string]bool{}
	for _, r := range resources {
		if seen[r] {
			return field.ErrorList{field.Invalid(path, resources, textDuplicate)}
		}
		seen[r] = true
		if gr := schema.ParseGroupResource(r); gr.Resource == "*" && r != "*" {
			whole[gr.Group] = true
		}
	}
	for _, r := range resources {
		gr := schema.ParseGroupResource(r)
		if whole["*"] && r != "*.*" || whole[gr.Group] && gr.Resource != "*" {
			return field.ErrorList{field.Invalid(path, resources, textMasked)}
		}
	}
	return nil
}

// validateNames validates the resources of a rule.
func validateNames(resources []string, path *field.Path) (errs field.ErrorList) {
	for i, r := range resources {
		groupResource := schema.ParseGroupResource(r)
		problem := ""
		switch {
		case strings.ContainsFunc(r, unicode.IsUpper):
			problem = textUppercase
		case r == "*":
			problem = textLoneStar
		case slices.Contains([]string{"apiserveripinfo", "serviceipallocations", "servicenodeportallocations"}, r):
			problem = textNoAPI
		case groupResource.Group == "events.k8s.io":
			problem = textEventsGroup
		case groupResource.Group == "extensions":
			problem = textExtensions
		case groupResource.Group == "*" && groupResource.Resource != "*":
			problem = textAcrossGroups
		default:
			continue
		}
		errs = append(errs, field.Invalid(path.Index(i), r, problem))
	}
	return errs
}

// String returns the form in which Kubernetes prints a provider in messages.
func (p *ProviderConfiguration) String() string {
	fieldText := func(field, kind string, set bool) string {
		if set {
			return fmt.Sprintf("%s:(*apiserver.%s)(set)", field, kind)
		}
		return fmt.Sprintf("%s:(*apiserver.%s)(nil)", field, kind)
	}
	return "apiserver.ProviderConfiguration{" + strings.Join([]string{
		fieldText("AESGCM", "AESConfiguration", p.AESGCM != nil), fieldText("AESCBC", "AESConfiguration", p.AESCBC != nil),
		fieldText("Secretbox", "SecretboxConfiguration", p.Secretbox != nil), fieldText("Identity", "IdentityConfiguration", p.Identity != nil),
		fieldText("KMS", "KMSConfiguration", p.KMS != nil),
	}, ", ") + "}"
}

// fixedText prints a given text for a provider in messages.
type fixedText struct{ text string }

func (s fixedText) String() string { return s.text }

// validate checks that the provider has exactly one kind, and validates it. names holds the names
// of the KMS providers so far.
func (p *ProviderConfiguration) validate(path *field.Path, names map[string]bool, reload bool) field.ErrorList {
	kinds := 0
	for _, set := range []bool{p.AESGCM != nil, p.AESCBC != nil, p.Secretbox != nil, p.Identity != nil, p.KMS != nil} {
		if set {
			kinds++
		}
	}
	switch {
	case kinds == 0:
		return field.ErrorList{field.Invalid(path, fixedText{p.String()}, textNoProvider)}
	case kinds > 1:
		return field.ErrorList{field.Invalid(path, fixedText{p.String()}, textManyProviders)}
	case p.KMS != nil:
		errs := p.KMS.validate(path.Child("kms"), names, reload)
		names[p.KMS.Name] = true
		return errs
	case p.AESGCM != nil:
		return p.AESGCM.validate(path.Child("aesgcm", "keys"), 16, 24, 32)
	case p.AESCBC != nil:
		return p.AESCBC.validate(path.Child("aescbc", "keys"), 16, 24, 32)
	case p.Secretbox != nil:
		return p.Secretbox.validate(path.Child("secretbox", "keys"), 32)
	}
	return nil
}

// redactedSecret replaces secrets in messages.
const redactedSecret = "REDACTED"

// validate validates keys, which must have one of the lengths in bytes.
func (c *KeysConfiguration) validate(path *field.Path, lengths ...int) (errs field.ErrorList) {
	if len(c.Keys) == 0 {
		return field.ErrorList{field.Required(path, fmt.Sprintf(textRequired, "keys"))}
	}
	for i := range c.Keys {
		k := &c.Keys[i]
		name := path.Index(i).Child("name")
		secret := path.Index(i).Child("secret")
		if k.Name == "" {
			errs = append(errs, field.Required(name, fmt.Sprintf(textMandatory, "name", "key")))
		}
		if k.Secret == "" {
			errs = append(errs, field.Required(secret, fmt.Sprintf(textMandatory, "secret", "key")))
			continue
		}
		bytes, err := base64.StdEncoding.DecodeString(k.Secret)
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(secret, redactedSecret, "secrets must be base64 encoded"))
		case !slices.Contains(lengths, len(bytes)):
			errs = append(errs,
				field.Invalid(secret, redactedSecret, fmt.Sprintf("secret is not of the expected length, got %d, expected one of %v",
					len(bytes), lengths)))
		}
	}
	return errs
}

// validate validates a KMS provider.
func (c *KMSConfiguration) validate(path *field.Path, names map[string]bool, reload bool) (errs field.ErrorList) {
	addInvalid := func(child string, value any, text string) {
		errs = append(errs, field.Invalid(path.Child(child), value, text))
	}
	switch {
	case c.Name == "":
		errs = append(errs, field.Required(path.Child("name"), fmt.Sprintf(textMandatory, "name", "provider")))
	case c.APIVersion != kmsV1 && strings.Contains(c.Name, ":"):
		addInvalid("name", c.Name, fmt.Sprintf("invalid KMS provider name %s, must not contain ':'", c.Name))
	case (c.APIVersion != kmsV1 || reload) && names[c.Name]:
		addInvalid("name", c.Name, fmt.Sprintf("duplicate KMS provider name %s, names must be unique", c.Name))
	}
	if c.Timeout.Duration <= 0 {
		addInvalid("timeout", fixedText{fmt.Sprintf("v1.Duration{Duration:%d}", c.Timeout.Duration)}, "timeout should be a positive value")
	}
	errs = append(errs, c.validateEndpoint(path.Child("endpoint"))...)
	if c.CacheSize != nil {
		switch {
		case c.APIVersion == kmsV2:
			addInvalid("cachesize", *c.CacheSize, "cachesize is not supported in v2")
		case *c.CacheSize == 0:
			addInvalid("cachesize", *c.CacheSize, "cachesize should be a positive value, or negative to disable")
		}
	}
	if c.APIVersion != kmsV1 && c.APIVersion != kmsV2 {
		addInvalid("apiVersion", c.APIVersion, "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported")
	}
	return errs
}

// validateEndpoint returns an error unless the endpoint is a Unix socket.
func (c *KMSConfiguration) validateEndpoint(path *field.Path) field.ErrorList {
	if c.Endpoint == "" {
		return field.ErrorList{field.Invalid(path, "", fmt.Sprintf(textMandatory, "endpoint", "kms"))}
	}
	u, err := url.Parse(c.Endpoint)
	switch {
	case err != nil:
		return field.ErrorList{field.Invalid(path, c.Endpoint, fmt.Sprintf("invalid endpoint for kms provider, error: %v", err))}
	case u.Scheme != "unix":
		return field.ErrorList{
			field.Invalid(path, c.Endpoint, fmt.Sprintf("unsupported scheme %q for KMS provider, only unix is supported", u.Scheme)),
		}
	}
	return nil
}
