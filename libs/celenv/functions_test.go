package celenv_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"

	"binnacle/libs/celenv"
)

// TestKubernetesLibraryFunctions evaluates the functions of the Kubernetes libraries.
func TestKubernetesLibraryFunctions(t *testing.T) {
	tests := []struct {
		expression string
		want       any // a value, or an error whose text the result must contain
	}{
		{expression: `url("https://u:p@[::1]:8443/a%20b?x=1&x=2#f").getHost()`, want: "[::1]:8443"},
		{expression: `url("https://u:p@[::1]:8443/a%20b?x=1&x=2#f").getHostname()`, want: "::1"},
		{expression: `url("https://u:p@[::1]:8443/a%20b?x=1&x=2#f").getPort()`, want: "8443"},
		{expression: `url("https://u:p@[::1]:8443/a%20b?x=1&x=2#f").getEscapedPath()`, want: "/a%20b"},
		{expression: `url("https://a/?x=1&x=2").getQuery()["x"].join(",")`, want: "1,2"},
		{expression: `url("/p").getScheme() == "" && url("/p") == url("/p") && url("/p") != url("/q")`, want: true},
		{expression: `isURL("a b") || isURL("../x")`, want: false},
		{expression: `url("x").getHost()`, want: errors.New("URL parse error during conversion from string")},

		{expression: `quantity("1k") == quantity("1000") && quantity("1Ki") != quantity("1k")`, want: true},
		{expression: `quantity("50k").add(quantity("20k")).sub(5).asInteger()`, want: int64(69995)},
		{expression: `sign(quantity("-1")) + sign(quantity("0"))`, want: int64(-1)},
		{expression: `quantity("1.5").isInteger()`, want: false},
		{expression: `quantity("1.5").asApproximateFloat()`, want: 1.5},
		{expression: `quantity("1.5").asInteger()`, want: errors.New("cannot convert value to integer")},
		{expression: `quantity("2Gi").isGreaterThan(quantity("1Gi")) && quantity("1").isLessThan(quantity("2"))`, want: true},
		{expression: `quantity("1").compareTo(quantity("2"))`, want: int64(-1)},
		{expression: `isQuantity("1gb")`, want: false},
		{expression: `quantity("x") == quantity("1")`, want: errors.New("quantities must match the regular expression")},

		{expression: `ip("10.0.0.1").family() == 4 && ip("::1").family() == 6 && ip("::1").isLoopback()`, want: true},
		{expression: `string(ip("2001:DB8::1"))`, want: "2001:db8::1"},
		{expression: `ip.isCanonical("2001:DB8::1")`, want: false},
		{expression: `isIP("1.2.3") || isIP("::ffff:1.2.3.4") || isIP("fe80::1%lo")`, want: false},
		{expression: `ip("fe80::1%lo").family()`, want: errors.New("with zone value is not allowed")},
		{
			expression: `ip("0.0.0.0").isUnspecified() && ip("224.0.0.1").isLinkLocalMulticast() && ip("169.254.1.1").isLinkLocalUnicast() && ip("8.8.8.8").isGlobalUnicast()`,
			want:       true,
		},
		{expression: `type(ip("1.2.3.4")) == net.IP && type(cidr("1.0.0.0/8")) == net.CIDR`, want: true},
		{
			expression: `cidr("10.2.3.4/16").containsIP("10.2.9.9") && cidr("10.0.0.0/8").containsCIDR("10.1.0.0/16") && !cidr("10.1.0.0/16").containsCIDR(cidr("10.0.0.0/8"))`,
			want:       true,
		},
		{expression: `cidr("10.0.0.0/8").containsIP(ip("11.0.0.0"))`, want: false},
		{
			expression: `string(cidr("10.2.3.4/16").masked()) + " " + string(cidr("10.2.3.4/16").ip())`,
			want:       "10.2.0.0/16 10.2.3.4",
		},
		{expression: `cidr("::1/128").prefixLength()`, want: int64(128)},
		{expression: `cidr("10.0.0.0/8") == cidr("10.0.0.0/8").masked()`, want: true},
		{expression: `cidr("10.0.0.0").ip() == ip("10.0.0.0")`, want: errors.New("no '/'")},
		{expression: `isCIDR("10.0.0.0/33")`, want: false},
		{expression: `cidr("10.0.0.0/8").containsIP("x")`, want: errors.New("no such overload")},

		{expression: `format.dns1123Label().validate("a-b").hasValue()`, want: false},
		{expression: `format.dns1123Label().validate("A").value()[0].startsWith("a lowercase RFC 1123 label must")`, want: true},
		{expression: `format.named("uuid").value().validate("x").value()[0]`, want: "does not match the UUID format"},
		{expression: `format.named("nothing").hasValue()`, want: false},
		{
			expression: `format.uri().validate("a b").hasValue() && format.byte().validate("!").hasValue() && format.date().validate("x").hasValue() && format.datetime().validate("x").hasValue()`,
			want:       true,
		},
		{expression: `format.labelValue().validate("ok").orValue(["no"]).size()`, want: int64(1)},
		{expression: `format.date() == format.named("date").value() && format.date() != format.uuid()`, want: true},

		{expression: `optional.none().or(optional.of(2)).value()`, want: int64(2)},
		{expression: `optional.of(1).or(optional.of(1 / 0)).value()`, want: int64(1)},
		{expression: `optional.of(1).orValue(1 / 0)`, want: int64(1)},
		{expression: `optional.none().orValue(3)`, want: int64(3)},
		{expression: `1 / 0`, want: errors.New("division by zero")},
	}
	env, err := celenv.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		t.Run(tt.expression, func(t *testing.T) {
			program, err := env.Compile(tt.expression)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second iteration reuses the plan
				got, err := program.Eval(t.Context(), nil, nil)
				if wantErr, ok := tt.want.(error); ok {
					if err == nil || !strings.Contains(err.Error(), wantErr.Error()) {
						t.Errorf("got %v, %v, want %q", got, err, wantErr)
					}
				} else if err != nil || got.Value() != tt.want {
					t.Errorf("got %v, %v, want %v", got, err, tt.want)
				}
			}
		})
	}
}

// TestRunnersAgreeWithPrograms compares results, errors and costs with those of CEL's own programs.
func TestRunnersAgreeWithPrograms(t *testing.T) {
	env := userEnv(t)
	for _, expression := range []string{
		`user.username == "ada"`, `"ops" in user.groups`, `has(claims.absent) || claims.n > 2`,
		`claims.list.map(e, e + "x").size()`,
		`claims.list.exists(e, e == "b") && [1, 2, 3].all(n, n > 0)`, `claims.?absent.orValue("x").size()`,
		`claims.absent`, `"abc".matches("a.c")`,
		`claims.email.matches("^[a-z]+$")`, `claims.n / 0`, `claims.n > 2 ? "a" : "b"`, `{"a": 1}["a"] + 1`,
		`[1, 2].filter(n, n > 1)`,
		`duration("1h") > duration("1m")`, `claims.list[5]`, `claims.optional.or(optional.of(1))`,
		`optional.of(claims.n).orValue(7)`,
	} {
		checked, issues := env.Check(expression)
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		runner, err := env.Runner(checked)
		if err != nil {
			t.Fatal(err)
		}
		program, err := celenv.Native(env, checked)
		if err != nil {
			t.Fatal(err)
		}
		want, details, wantErr := program.ContextEval(t.Context(), variables())
		given, err := interpreter.NewActivation(variables())
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			got, cost, err := runner.Run(t.Context(), given)
			if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
				t.Errorf("%s: got %v, want %v", expression, err, wantErr)
			}
			if err == nil && got.Equal(want) != types.True {
				t.Errorf("%s: got %v, want %v", expression, got, want)
			}
			if cost != *details.ActualCost() {
				t.Errorf("%s: costs %d, want %d", expression, cost, *details.ActualCost())
			}
		}
	}
}

// TestRunnerIsReusableAfterStop checks that a Runner whose evaluation was canceled evaluates again,
// with the same cost.
func TestRunnerIsReusableAfterStop(t *testing.T) {
	env := userEnv(t)
	checked, issues := env.Check(`claims.many.all(e, e >= 0)`)
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	runner, err := env.Runner(checked)
	if err != nil {
		t.Fatal(err)
	}
	evaluate := func(ctx context.Context, n int) (uint64, error) {
		given, err := interpreter.NewActivation(map[string]any{"claims": map[string]any{"many": make([]int64, n)}})
		if err != nil {
			t.Fatal(err)
		}
		_, cost, err := runner.Run(ctx, given)
		return cost, err
	}
	cost, err := evaluate(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := evaluate(ended, 1000); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("after the end of the context: %v, want the error: interrupted", err)
	}
	if over, err := evaluate(t.Context(), 1_000_000); err == nil || !strings.HasPrefix(err.Error(),
		"operation cancelled: actual cost limit exceeded") || over <= celenv.PerCallLimit {
		t.Errorf("got cost %d, error %v, want a cost over %d and the error: actual cost limit exceeded", over, err,
			celenv.PerCallLimit)
	}
	if again, err := evaluate(t.Context(), 10); err != nil || again != cost {
		t.Errorf("afterwards: cost %d, %v, want %d", again, err, cost)
	}
}
