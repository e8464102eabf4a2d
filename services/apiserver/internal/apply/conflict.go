package apply

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v4/merge"
)

// conflictError is the 409 of an apply: a cause for each field, and the text
// that clients match.
func conflictError(conflicts merge.Conflicts) error {
	// The fields of each stay in the order of their set.
	slices.SortStableFunc(conflicts, func(a, b merge.Conflict) int { return strings.Compare(a.Manager, b.Manager) })
	causes := make([]metav1.StatusCause, 0, len(conflicts))
	var lines []string
	for i, c := range conflicts {
		who := ownerOf(c.Manager).String()
		causes = append(causes, metav1.StatusCause{
			Type: metav1.CauseTypeFieldManagerConflict, Message: "conflict with " + who, Field: c.Path.String(),
		})
		if i == 0 || conflicts[i-1].Manager != c.Manager {
			lines = append(lines, fmt.Sprintf("conflicts with %s:", who))
		}
		lines = append(lines, "- "+c.Path.String())
	}
	message := fmt.Sprintf("Apply failed with %d conflicts: %s", len(conflicts), strings.Join(lines, "\n"))
	if len(conflicts) == 1 {
		message = fmt.Sprintf("Apply failed with 1 conflict: %s: %s", causes[0].Message, causes[0].Field)
	}
	return apierrors.NewApplyConflict(causes, message)
}

// String names an owner as conflicts do.
func (o owner) String() string {
	s := fmt.Sprintf("%q", o.Manager)
	if o.Subresource != "" {
		s += fmt.Sprintf(" with subresource %q", o.Subresource)
	}
	if !o.applied() {
		s += " using " + o.APIVersion
	}
	return s
}
