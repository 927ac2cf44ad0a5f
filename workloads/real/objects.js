// Records of which a tenth is read, beside objects that are made and dropped: `objects.js STEPS`.

const RECORDS = 400000
const BATCH = 1000
const steps = Number(process.argv[2])

const table = new Map()
for (let key = 0; key < RECORDS; key++) table.set(key, { key, body: 'b'.repeat(100) + key, tags: [key, String(key)], more: new Float64Array(32) })
let seed = 1
let total = 0
for (let step = 0; step < steps; step += BATCH) {
  const made = []
  for (let i = 0; i < BATCH; i++) made.push({ name: String(step + i) })
  for (const one of made) {
    seed = (seed * 1103515245 + 12345) % 2147483648
    total += table.get(seed % (RECORDS / 10)).key + one.name.length
  }
}
console.log('total:', total)
