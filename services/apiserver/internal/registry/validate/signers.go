package validate

import (
	"fmt"
	"strings"
)

// Limits of the names of signers, in bytes.
const (
	longestDomain = 253
	longestPath   = 253
)

// SignerName requires a domain and a path with one segment.
func (a At) SignerName(name, signer string) {
	if signer == "" {
		a.Required(name, "")
		return
	}
	domain, path, ok := strings.Cut(signer, "/")
	if !ok || strings.Contains(path, "/") {
		a.Invalid(name, signer, "must be a fully qualified domain and path of the form 'example.com/signer-name'")
		return
	}
	a.MaxBytes(name, domain, longestDomain)
	labels := strings.Split(domain, ".")
	partRules := func(whole, part string, format Format) {
		for _, msg := range format(part) {
			a.Invalid(name, whole, fmt.Sprintf("validating label %q: %s", part, msg))
		}
	}
	for _, label := range labels {
		partRules(domain, label, DNSLabel)
	}
	if len(labels) < 2 {
		a.Invalid(name, domain, "should be a domain with at least two segments separated by dots")
	}
	for part := range strings.SplitSeq(path, ".") {
		partRules(path, part, DNSSubdomain)
	}
	a.MaxBytes(name, signer, longestDomain+1+longestPath)
}

// TrustBundleName requires the signer's name, with a colon for the slash, as prefix of a bundle's
// name. A bundle without a signer has no colon.
func TrustBundleName(signer string) Format {
	return func(name string) []string {
		if signer == "" {
			if strings.Contains(name, ":") {
				return []string{`ClusterTrustBundle without signer name must not have ":" in its name`}
			}
			return DNSSubdomain(name)
		}
		own, ok := strings.CutPrefix(name, strings.ReplaceAll(signer, "/", ":")+":")
		if !ok {
			return []string{
				fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s:", signer,
					strings.ReplaceAll(signer, "/", ":")),
			}
		}
		return DNSSubdomain(own)
	}
}
