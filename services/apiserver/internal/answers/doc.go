// Package answers bounds what answers of other servers may cost that are carried on by
// a proxy (k8s.io/apimachinery/pkg/util/proxy). For links in them to be rewritten, it
// holds whole pages of HTML, with all that compression hid, however long they are; and
// it writes answers before the answer without end, of which each takes away what this
// server says in the headers of its own.
//
//	Bounded  a round tripper whose pages are small, or not for rewriting, and that
//	         gives one answer, without what only this server says
//	MaxHead  the longest head of an answer, whoever reads it
package answers
