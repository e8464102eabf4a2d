package rules

import (
	"fmt"
	"math"
	"strings"

	"github.com/google/cel-go/common/types"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// maxMessage is the maximum length in bytes of a message from a messageExpression.
const maxMessage = 5 << 10

// evaluateMessage evaluates the messageExpression. ok reports whether there is a text. A non-empty
// detail ends the evaluation of all rules.
func (e *evaluation) evaluateMessage(rule *rule, vars *variables) (text string, ok bool, detail string) {
	result, cost, err := rule.message.run.Run(e.ctx, vars)
	if cost > math.MaxInt64 || int64(cost) > e.budget {
		e.budget = budgetSpent
		return "", false, "messageExpression evaluation failed due to running out of cost budget, " +
			"no further validation rules will be run"
	}
	e.budget -= int64(cost)
	if err != nil {
		if strings.HasPrefix(err.Error(), costLimitExceeded) {
			e.budget = budgetSpent
			return "", false, fmt.Sprintf(
				"no further validation rules will be run due to call cost exceeds limit for messageExpression: %q",
				rule.messageExpression)
		}
		return "", false, ""
	}
	s, isText := result.(types.String)
	text = strings.TrimSpace(string(s))
	ok = isText && text != "" && len(text) <= maxMessage && !strings.Contains(text, "\n")
	return text, ok, ""
}

// hasText reports whether a text is not blank.
func hasText(s string) bool { return strings.TrimSpace(s) != "" }

// ruleDescription returns the text that identifies a rule in errors.
func ruleDescription(r *v1.ValidationRule) string {
	if r.Message != "" {
		return strings.TrimSpace(r.Message)
	}
	return strings.TrimSpace(r.Rule)
}

// fixedMessageOf returns the message of a rule without a messageExpression.
func fixedMessageOf(r *v1.ValidationRule) string {
	if r.Message != "" {
		return strings.TrimSpace(r.Message)
	}
	return "failed rule: " + strings.TrimSpace(r.Rule)
}
