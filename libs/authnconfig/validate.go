package authnconfig

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/libs/api"
	"binnacle/libs/celenv"
	"binnacle/libs/oidctoken"
	"binnacle/libs/serving/tlsfiles"
)

const (
	// maxJWT is the largest number of issuers.
	maxJWT = 64

	// omitted replaces a value that an error must not show.
	omitted = "<omitted>"

	bothSet               = "claim and expression can't both be set"
	neitherSet            = "claim or expression is required"
	emailVerifiedRequired = "claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression"
)

// compiledConfig is a valid configuration that is ready to use.
type compiledConfig struct {
	issuers   []compiledIssuer
	anonymous *Anonymous
}

// compiledIssuer is an issuer of the configuration, ready to verify tokens.
type compiledIssuer struct {
	provider  oidctoken.ProviderConfig
	audiences []string
	rules     *rules
}

// compiler validates a configuration and collects the compiled parts.
type compiler struct {
	envs       *environments
	disallowed []string
	errs       field.ErrorList
}

func (c *compiler) addError(err *field.Error) { c.errs = append(c.errs, err) }

// compile validates a configuration. disallowed lists issuers whose tokens are authenticated
// elsewhere.
func compile(config *Configuration, disallowed []string) (*compiledConfig, field.ErrorList, error) {
	envs, err := newEnvironments()
	if err != nil {
		return nil, nil, err
	}
	c := &compiler{envs: envs, disallowed: disallowed}
	root := field.NewPath("jwt")
	if len(config.JWT) > maxJWT {
		return nil, field.ErrorList{field.TooMany(root, len(config.JWT), maxJWT)}, nil
	}
	out := &compiledConfig{anonymous: config.Anonymous}
	urls, discoveries := map[string]bool{}, map[string]bool{}
	for i := range config.JWT {
		j, path := &config.JWT[i], root.Index(i)
		c.checkUniqueURL(path.Child("issuer", "url"), j.Issuer.URL, urls)
		c.checkUniqueURL(path.Child("issuer", "discoveryURL"), j.Issuer.DiscoveryURL, discoveries)
		out.issuers = append(out.issuers, c.compileJWT(path, j))
	}
	if config.Anonymous != nil {
		c.validateAnonymous(field.NewPath("anonymous"), config.Anonymous)
	}
	return out, c.errs, nil
}

func (c *compiler) checkUnique(path *field.Path, value string, seen map[string]bool) {
	if value != "" && seen[value] {
		c.addError(field.Duplicate(path, value))
	}
	seen[value] = true
}

// checkUniqueURL is checkUnique for a URL, whose password it does not report.
func (c *compiler) checkUniqueURL(path *field.Path, raw string, seen map[string]bool) {
	if raw != "" && seen[raw] {
		c.addError(field.Duplicate(path, redactURL(raw)))
	}
	seen[raw] = true
}

// validateAnonymous validates the conditions of anonymous requests.
func (c *compiler) validateAnonymous(path *field.Path, anonymous *Anonymous) {
	if !anonymous.Enabled && len(anonymous.Conditions) > 0 {
		c.addError(field.Invalid(path.Child("conditions"), anonymous.Conditions,
			"enabled should be set to true when conditions are defined"))
	}
	for i, condition := range anonymous.Conditions {
		if conditionPath := path.Child("conditions").Index(i).Child("path"); condition.Path == "" {
			c.addError(field.Required(conditionPath, ""))
		} else if !strings.HasPrefix(condition.Path, "/") {
			c.addError(field.Invalid(conditionPath, condition.Path, "must begin with /"))
		}
	}
}

// compileJWT validates an entry of the configuration and compiles its expressions.
func (c *compiler) compileJWT(path *field.Path, j *JWT) compiledIssuer {
	c.validateIssuer(path.Child("issuer"), &j.Issuer)
	r := &rules{mappings: j.ClaimMappings}
	c.compileClaimRules(path.Child("claimValidationRules"), j.ClaimValidationRules, r)
	c.compileMappings(path.Child("claimMappings"), &j.ClaimMappings, r)
	c.compileUserRules(path.Child("userValidationRules"), j.UserValidationRules, r)
	return compiledIssuer{
		provider: oidctoken.ProviderConfig{
			IssuerURL:    j.Issuer.URL,
			DiscoveryURL: j.Issuer.DiscoveryURL,
			CA:           j.Issuer.CertificateAuthority,
			Algorithms:   oidctoken.SigningAlgorithms(),
		},
		audiences: j.Issuer.Audiences,
		rules:     r,
	}
}

// validateIssuer validates the issuer of an entry.
func (c *compiler) validateIssuer(path *field.Path, i *Issuer) {
	if i.URL == "" {
		c.addError(field.Required(path.Child("url"), "URL is required"))
	} else {
		if slices.Contains(c.disallowed, i.URL) {
			disallowed := make([]string, len(c.disallowed))
			for n, issuer := range c.disallowed {
				disallowed[n] = redactURL(issuer)
			}
			c.addError(field.Invalid(path.Child("url"), redactURL(i.URL),
				fmt.Sprintf("URL must not overlap with disallowed issuers: %s", disallowed)))
		}
		c.validateURL(path.Child("url"), i.URL)
	}
	if i.DiscoveryURL != "" {
		if i.URL != "" && strings.TrimRight(i.URL, "/") == strings.TrimRight(i.DiscoveryURL, "/") {
			c.addError(field.Invalid(path.Child("discoveryURL"), redactURL(i.DiscoveryURL),
				"discoveryURL must be different from URL"))
		}
		c.validateURL(path.Child("discoveryURL"), i.DiscoveryURL)
	}
	c.validateAudiences(path, i)
	if i.CertificateAuthority != "" {
		if _, err := tlsfiles.ParseCertificates([]byte(i.CertificateAuthority)); err != nil {
			c.addError(field.Invalid(path.Child("certificateAuthority"), omitted, err.Error()))
		}
	}
}

// redactURL returns a URL as an error may show it: without its password. A URL without credentials
// stays as it is. A URL that may have a password at an unknown place is omitted.
func redactURL(raw string) string {
	if !strings.Contains(raw, "@") {
		return raw
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Host == "":
		return omitted
	case u.User != nil:
		return u.Redacted()
	}
	return raw
}

// validateURL validates a URL of an issuer.
func (c *compiler) validateURL(path *field.Path, raw string) {
	shown := redactURL(raw)
	u, err := url.Parse(raw)
	if err != nil {
		reason := err.Error()
		if shown != raw {
			reason = "URL cannot be parsed" // the error contains the URL or a part of it
		}
		c.addError(field.Invalid(path, shown, reason))
		return
	}
	if u.Scheme != "https" {
		c.addError(field.Invalid(path, shown, "URL scheme must be https"))
	}
	if u.Host == "" {
		c.addError(field.Invalid(path, shown, "URL must contain a host"))
	}
	if u.User != nil {
		c.addError(field.Invalid(path, shown, "URL must not contain a username or password"))
	}
	if u.RawQuery != "" || u.ForceQuery {
		c.addError(field.Invalid(path, shown, "URL must not contain a query"))
	}
	if u.Fragment != "" {
		c.addError(field.Invalid(path, shown, "URL must not contain a fragment"))
	}
}

// validateAudiences validates the audiences of an issuer.
func (c *compiler) validateAudiences(path *field.Path, i *Issuer) {
	list := path.Child("audiences")
	policy := path.Child("audienceMatchPolicy")
	if len(i.Audiences) == 0 {
		c.addError(field.Required(list, fmt.Sprintf("at least one %s is required", list)))
		return
	}
	seen := map[string]bool{}
	for n, a := range i.Audiences {
		if a == "" {
			c.addError(field.Required(list.Index(n), "audience can't be empty"))
		}
		c.checkUnique(list.Index(n), a, seen)
	}
	switch {
	case i.AudienceMatchPolicy == matchAny:
	case len(i.Audiences) > 1:
		c.addError(field.Invalid(policy, i.AudienceMatchPolicy, "audienceMatchPolicy must be MatchAny for multiple audiences"))
	case i.AudienceMatchPolicy != "":
		c.addError(field.Invalid(policy, i.AudienceMatchPolicy,
			"audienceMatchPolicy must be empty or MatchAny for single audience"))
	}
}

// compileClaimRules validates the claim validation rules and adds them to r.
func (c *compiler) compileClaimRules(path *field.Path, list []ClaimValidationRule, r *rules) {
	claims, expressions := map[string]bool{}, map[string]bool{}
	for i, rule := range list {
		path := path.Index(i)
		switch {
		case rule.Claim != "" && rule.Expression != "":
			c.addError(field.Invalid(path, rule.Claim, bothSet))
		case rule.Claim != "":
			if rule.Message != "" {
				c.addError(field.Invalid(path.Child("message"), rule.Message, "message can't be set when claim is set"))
			}
			c.checkUnique(path.Child("claim"), rule.Claim, claims)
			r.required = append(r.required, rule)
		case rule.Expression != "":
			if rule.RequiredValue != "" {
				c.addError(field.Invalid(path.Child("requiredValue"), rule.RequiredValue,
					"requiredValue can't be set when expression is set"))
			}
			c.checkUnique(path.Child("expression"), rule.Expression, expressions)
			if p := c.compileExpression(path.Child("expression"), c.envs.claims, rule.Expression, cel.BoolType); p != nil {
				r.claimChecks = append(r.claimChecks, boolRule{program: p, message: rule.Message})
			}
		default:
			c.addError(field.Required(path, neitherSet))
		}
	}
}

// compileMappings validates the claim mappings and adds their expressions to r.
func (c *compiler) compileMappings(path *field.Path, claimMappings *ClaimMappings, r *rules) {
	stringTypes := []*cel.Type{cel.StringType, cel.DynType}
	listTypes := append([]*cel.Type{cel.ListType(cel.StringType), cel.ListType(cel.DynType), cel.NullType}, stringTypes...)

	if u := &claimMappings.Username; u.Claim == "" && u.Expression == "" && (u.Prefix == nil || *u.Prefix == "") { // otherwise reported below
		c.addError(field.Required(path.Child("username"), neitherSet))
	}
	r.username = c.compilePrefixed(path.Child("username"), &claimMappings.Username, stringTypes)
	r.groups = c.compilePrefixed(path.Child("groups"), &claimMappings.Groups, listTypes)
	r.uid = c.compileClaimOrExpression(path.Child("uid"), claimMappings.UID.Claim, claimMappings.UID.Expression, stringTypes)
	seen := map[string]bool{}
	for i, extraMapping := range claimMappings.Extra {
		path := path.Child("extra").Index(i)
		c.validateExtraKey(path.Child("key"), extraMapping.Key)
		c.checkUnique(path.Child("key"), extraMapping.Key, seen)
		if extraMapping.ValueExpression == "" {
			c.addError(field.Required(path.Child("valueExpression"), "valueExpression is required"))
			continue
		}
		if p := c.compileExpression(path.Child("valueExpression"), c.envs.claims, extraMapping.ValueExpression, listTypes...); p != nil {
			r.extra = append(r.extra, extraProgram{key: extraMapping.Key, program: p})
		}
	}
	if r.username != nil && r.username.ReadsField("claims", "email") && !r.checksEmail() {
		c.addError(field.Invalid(path.Child("username", "expression"), claimMappings.Username.Expression, emailVerifiedRequired))
	}
}

// compilePrefixed validates a claim with a prefix, or an expression. It returns the program of the
// expression.
func (c *compiler) compilePrefixed(path *field.Path, mapping *PrefixedClaimOrExpression, expected []*cel.Type) *celenv.Program {
	switch {
	case mapping.Claim != "" && mapping.Expression != "": // compileClaimOrExpression reports it
	case mapping.Expression != "" && mapping.Prefix != nil:
		c.addError(field.Invalid(path.Child("prefix"), *mapping.Prefix, "prefix can't be set when expression is set"))
	case mapping.Claim != "" && mapping.Prefix == nil:
		c.addError(field.Required(path.Child("prefix"),
			"prefix is required when claim is set. It can be set to an empty string to disable prefixing"))
	case mapping.Claim == "" && mapping.Expression == "" && mapping.Prefix != nil && *mapping.Prefix != "":
		c.addError(field.Required(path, neitherSet))
	}
	return c.compileClaimOrExpression(path, mapping.Claim, mapping.Expression, expected)
}

// compileClaimOrExpression validates a claim or an expression. It returns the program of the
// expression.
func (c *compiler) compileClaimOrExpression(path *field.Path, claim, expression string, expected []*cel.Type) *celenv.Program {
	switch {
	case claim != "" && expression != "":
		c.addError(field.Invalid(path, "", bothSet))
	case expression != "":
		return c.compileExpression(path.Child("expression"), c.envs.claims, expression, expected...)
	}
	return nil
}

// validateExtraKey validates a key of the extra fields.
func (c *compiler) validateExtraKey(path *field.Path, key string) {
	c.errs = append(c.errs, validation.IsDomainPrefixedPath(path, key)...)
	if key != strings.ToLower(key) {
		c.addError(field.Invalid(path, key, "must be lowercase"))
	}
	domain, _, _ := strings.Cut(key, "/")
	for _, reserved := range []string{api.Domain, api.LabelDomain} {
		if domain == reserved || strings.HasSuffix(domain, "."+reserved) {
			c.addError(field.Invalid(path, key,
				fmt.Sprintf("%s, %s and their subdomains are reserved for Kubernetes use", api.Domain, api.LabelDomain)))
		}
	}
}

// compileUserRules validates the user validation rules and adds them to r.
func (c *compiler) compileUserRules(path *field.Path, list []UserValidationRule, r *rules) {
	seen := map[string]bool{}
	for i, rule := range list {
		path := path.Index(i).Child("expression")
		if rule.Expression == "" {
			c.addError(field.Required(path, "expression is required"))
			continue
		}
		c.checkUnique(path, rule.Expression, seen)
		if p := c.compileExpression(path, c.envs.user, rule.Expression, cel.BoolType); p != nil {
			r.userChecks = append(r.userChecks, boolRule{program: p, message: rule.Message})
		}
	}
}

// compileExpression returns the program of an expression, or records an error and returns nil.
func (c *compiler) compileExpression(path *field.Path, env *celenv.Env, expression string,
	expected ...*cel.Type) *celenv.Program {
	program, err := env.Compile(expression, expected...)
	if err != nil {
		c.addError(field.Invalid(path, expression, err.Error()))
		return nil
	}
	return program
}
