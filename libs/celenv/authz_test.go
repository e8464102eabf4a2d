package celenv_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"

	"binnacle/libs/authorizer"
	"binnacle/libs/celenv"
)

// decide allows ada to read pods, a service account to list with both kinds of selectors, and any
// user to read /healthz. It denies access to the scale of d, has no opinion on other requests, and
// returns an error for the verb fail.
func decide(attributes *authorizer.Attributes) (authorizer.Decision, string, error) {
	switch {
	case attributes.Verb == "fail":
		return authorizer.NoOpinion, "no answer", errors.New("out of order")
	case !attributes.Resource && attributes.Path == "/healthz" && attributes.Verb == "get":
		return authorizer.Allow, "all may", nil
	case attributes.User.Name == "ada" && attributes.ResourceName == "pods" && attributes.Verb == "get" && attributes.Namespace == "n" && attributes.Version == "*":
		return authorizer.Allow, "", nil
	case attributes.User.Name == "system:serviceaccount:n:s" && attributes.User.InGroup("system:serviceaccounts:n") &&
		len(attributes.FieldSelector)+len(attributes.LabelSelector) == 2:
		return authorizer.Allow, "", nil
	case attributes.Group == "apps" && attributes.Subresource == "scale" && attributes.Name == "d":
		return authorizer.Deny, "never", nil
	}
	return authorizer.NoOpinion, "", nil
}

// TestAuthorizerLibraryReturnsDecisions evaluates the functions of the authorizer library.
func TestAuthorizerLibraryReturnsDecisions(t *testing.T) {
	env, err := celenv.New(map[string]*cel.Type{
		"authorizer":                 celenv.AuthorizerType,
		"authorizer.requestResource": celenv.ResourceCheckType,
	})
	if err != nil {
		t.Fatal(err)
	}
	ada := &authorizer.User{Name: "ada"}
	variables := map[string]any{
		"authorizer": celenv.NewAuthorizer(ada, decide),
		"authorizer.requestResource": celenv.NewResourceCheck(
			&authorizer.Attributes{User: ada, ResourceName: "pods", Namespace: "n"}, decide),
	}
	tests := []struct {
		expression string
		wantErr    string
	}{
		{expression: `authorizer.path('/healthz').check('get').allowed()`},
		{expression: `authorizer.path('/healthz').check('get').reason() == 'all may'`},
		{expression: `!authorizer.path('/other').check('get').allowed()`},
		{expression: `authorizer.path(' ').check('get').allowed()`, wantErr: "path must not be empty"},
		{expression: `authorizer.group('').resource('pods').namespace('n').check('get').allowed()`},
		{expression: `!authorizer.group('').resource('pods').check('get').allowed()`},
		{expression: `authorizer.group('').resource('').check('get').allowed()`, wantErr: "resource must not be empty"},
		{expression: `authorizer.requestResource.check('get').allowed()`},
		{expression: `!authorizer.requestResource.namespace('m').check('get').allowed()`},
		{expression: `authorizer.group('apps').resource('x').subresource('scale').name('d').check('get').reason() == 'never'`},
		{expression: `authorizer.group('').resource('pods').check('fail').errored()`},
		{expression: `authorizer.group('').resource('pods').check('fail').error() == 'out of order'`},
		{expression: `authorizer.path('/healthz').check('get').error() == ''`},
		{expression: `authorizer.serviceAccount('n', 's').group('').resource('p').fieldSelector('a=b').labelSelector('c').check('list').allowed()`},
		{expression: `!authorizer.serviceAccount('n', 's').group('').resource('p').fieldSelector('a=b').labelSelector('!!').check('list').allowed()`},
		{
			expression: `authorizer.serviceAccount('n', 'A b').path('/').check('get').allowed()`,
			wantErr:    "Invalid service account name",
		},
		{
			expression: `authorizer.serviceAccount('n.', 's').path('/').check('get').allowed()`,
			wantErr:    "Invalid service account namespace",
		},
		{expression: `[1, 2, 3].all(x, authorizer.path('/healthz').check('get').allowed())`, wantErr: "cost limit"},
	}
	for _, test := range tests {
		program, err := env.Compile(test.expression, cel.BoolType)
		if err != nil {
			t.Errorf("%s: %v", test.expression, err)
			continue
		}
		ok, err := program.Bool(context.Background(), variables, nil)
		switch {
		case test.wantErr != "":
			if err == nil || !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("%s: error %v, want one that contains %q", test.expression, err, test.wantErr)
			}
		case err != nil || !ok:
			t.Errorf("%s: got %t, %v, want true", test.expression, ok, err)
		}
	}
}

// TestAuthorizerCheckCostIsHigh checks that the estimated cost of a check is that of Kubernetes, so
// that an expression cannot make many checks.
func TestAuthorizerCheckCostIsHigh(t *testing.T) {
	env, err := celenv.New(map[string]*cel.Type{"authorizer": celenv.AuthorizerType})
	if err != nil {
		t.Fatal(err)
	}
	if cost, err := estimate(env, `authorizer.path('/healthz').check('get').allowed()`); err != nil || cost < 350_000 {
		t.Errorf("estimated cost of a check = %d (%v), want no error, cost at least 350_000", cost, err)
	}
}

func estimate(env *celenv.Env, expression string) (uint64, error) {
	ast, issues := env.Check(expression)
	if err := issues.Err(); err != nil {
		return 0, err
	}
	return env.Estimate(ast, nil)
}
