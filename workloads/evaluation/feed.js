// A feed of posts, in JavaScript: `feed.js SECONDS`.
//
// 200,000 posts are held. Twenty times a second ten readers get a page of twenty of the newest 10,000 as JSON, and ten posts are
// added; the oldest are dropped.

const POSTS = 200_000
const RECENT = 10_000
const RATE = 20

let seed = 1
const draw = (below) => {
  seed = (seed * 1103515245 + 12345) % 2147483648
  return Math.floor((seed / 2147483648) * below)
}
const post = (number) => ({
  number,
  author: 'author ' + draw(5000),
  text: ('text of post ' + number + ' ').repeat(12),
  likes: Array.from({ length: 16 }, () => draw(1 << 20)),
})

const feed = new Map()
for (let number = 0; number < POSTS; number++) feed.set(number, post(number))

let next = POSTS
let sent = 0
const serve = () => {
  for (let reader = 0; reader < 10; reader++) {
    const first = next - 20 - draw(RECENT - 20)
    const page = []
    for (let number = first; number < first + 20; number++) page.push(feed.get(number))
    sent += JSON.stringify(page).length
    feed.set(next, post(next))
    feed.delete(next - POSTS)
    next++
  }
}

const calls = Math.floor(RATE * Number(process.argv[2]))
const start = performance.now()
let done = 0
let took = 0
const turn = () => {
  const begun = performance.now()
  serve()
  took += performance.now() - begun
  if (++done === calls) return console.log(`sent: ${sent}, mean: ${(took / calls).toFixed(3)} ms`)
  // What comes late is not left out.
  setTimeout(turn, Math.max(0, start + (1000 / RATE) * done - performance.now()))
}
turn()
