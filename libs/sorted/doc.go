// Package sorted provides ordered collections that are copied in constant time: a Set of items in
// the order of a function, and a Map of ordered keys. A copy shares its nodes with the original
// until one of them changes.
//
// Set and Map are interfaces. The compiler compiles all methods of a generic type again in every
// package that imports a struct with a field of that type, and a B-tree has hundreds of them.
//
// Collections are not safe for concurrent use if one of the uses is a change or a copy.
package sorted
