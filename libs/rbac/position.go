package rbac

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// PositionHeader is the response header of an access review with the position of the policy that
// the decision is based on.
const PositionHeader = "X-Binnacle-Policy-Revision"

// Position holds the resourceVersion up to which the changes of each kind are included. Its text
// form is "clusterrolebindings=4,clusterroles=2,rolebindings=9,roles=3".
type Position [4]int64

// positionNames holds the resources in the order of Position.
var positionNames = [...]string{"clusterrolebindings", "clusterroles", "rolebindings", "roles"}

// positionIndex returns the index of a kind in a Position, or -1.
func positionIndex(kind string) int {
	return slices.Index([]string{KindClusterRoleBinding, KindClusterRole, KindRoleBinding, KindRole}, kind)
}

// advance records a change of a kind.
func (p *Position) advance(kind string, revision int64) {
	if i := positionIndex(kind); i >= 0 {
		p[i] = max(p[i], revision)
	}
}

// Advance returns the position after a change of a kind.
func (p Position) Advance(kind string, revision int64) Position {
	p.advance(kind, revision)
	return p
}

// Covers reports whether p includes all changes that q includes.
func (p Position) Covers(q Position) bool {
	for i := range p {
		if p[i] < q[i] {
			return false
		}
	}
	return true
}

// String returns the text form.
func (p Position) String() string {
	var b strings.Builder
	for i, name := range positionNames {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(name)
		b.WriteByte('=')
		b.WriteString(strconv.FormatInt(p[i], 10))
	}
	return b.String()
}

// ParsePosition parses the text form. A single number stands for all kinds. The position of an
// absent kind is 0.
func ParsePosition(text string) (Position, error) {
	var position Position
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
		return Position{n, n, n, n}, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, number, _ := strings.Cut(strings.TrimSpace(part), "=")
		i := slices.Index(positionNames[:], name)
		n, err := strconv.ParseInt(number, 10, 64)
		if i < 0 || err != nil || n < 0 {
			return Position{}, fmt.Errorf("policy position %.100q is not valid", text)
		}
		position[i] = n
	}
	return position, nil
}
